package epochal;

import java.io.IOException;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;

/**
 * How Spark writes a checkpoint on S3, for ``spark.sql.streaming.checkpointFileManagerClass``.
 *
 * <p>A file is one object, written when it is closed. It appears whole, or not at all. A file that must not replace
 * another is written under the condition that nothing has its name, which the store keeps: of two drivers that write
 * ``offsets/N`` or ``commits/N``, one does, and the other is told so. Checkpoints on other file systems are written by
 * Spark's own manager.
 */
public class StoreCheckpoints implements CheckpointFileManager {
    private final CheckpointFileManager others;
    private final FileSystem system; // null: not on S3

    public StoreCheckpoints(Path path, Configuration conf) throws IOException {
        FileSystem found = path.getFileSystem(conf);
        if (!"s3a".equals(found.getScheme()) && !"s3".equals(found.getScheme())) {
            this.system = null;
            this.others = new FileContextBasedCheckpointFileManager(path, conf);
            return;
        }
        if (!found.hasPathCapability(path, NewObject.UNLESS_THERE)) {
            throw new IOException(
                "S3A may not write under a condition: fs.s3a.create.conditional.enabled must not be false");
        }
        this.system = found;
        this.others = new FileSystemBasedCheckpointFileManager(path, conf);
    }

    public CheckpointFileManager.CancellableFSDataOutputStream createAtomic(Path path, boolean overwriteIfPossible) {
        if (this.system == null) {
            return this.others.createAtomic(path, overwriteIfPossible);
        }
        try {
            if (!overwriteIfPossible) {
                return new NewObject(this.system, path, UUID.randomUUID().toString().replace("-", ""));
            }
            FSDataOutputStream stream = (FSDataOutputStream) this.system.createFile(path).overwrite(true).build();
            return new ReplacedObject(stream);
        } catch (IOException e) {
            throw unchecked(e);
        }
    }

    public FSDataInputStream open(Path path) {
        return this.others.open(path);
    }

    public FileStatus[] list(Path path, PathFilter filter) {
        return this.others.list(path, filter);
    }

    public void mkdirs(Path path) {
        this.others.mkdirs(path);
    }

    public boolean exists(Path path) {
        return this.others.exists(path);
    }

    public void delete(Path path) {
        this.others.delete(path);
    }

    public boolean isLocal() {
        return this.others.isLocal();
    }

    public Path createCheckpointDirectory() {
        return this.others.createCheckpointDirectory();
    }

    /** An exception that a method can throw which does not declare it: Spark's own, in Scala, declare none. */
    private static RuntimeException unchecked(Throwable e) {
        StoreCheckpoints.<RuntimeException>sneak(e);
        return null;
    }

    private static <T extends Throwable> void sneak(Throwable e) throws T {
        throw (T) e;
    }
}
