package epochal;

import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;

/**
 * A file of a checkpoint on S3 that must not replace another: ``metadata``, ``offsets/N``, ``commits/N``, a source's log.
 *
 * <p>The object has the random identity of this stream as metadata. If the store's answer was lost, the client has sent
 * the request again, and was told that the name exists: the identity says whether it is this very file. If nobody has
 * the name, as after a 409, the file is written once more; so its content stays in memory until then.
 */
class NewObject extends CheckpointFileManager.CancellableFSDataOutputStream {
    static final String UNLESS_THERE = "fs.option.create.conditional.overwrite";
    private static final String HEADER = "fs.s3a.create.header.";
    private static final String IDENTITY = "epochalid"; // as epochal's own client spells it
    private static final int TRIES = 8;
    private static final long FIRST = 50; // milliseconds

    private final FileSystem system;
    private final Path path;
    private final String identity;
    private boolean ended = false;

    NewObject(FileSystem system, Path path, String identity) throws IOException {
        super(new ByteArrayOutputStream());
        this.system = system;
        this.path = path;
        this.identity = identity;
    }

    public synchronized void close() throws IOException {
        if (this.ended) {
            return;
        }
        this.ended = true;
        this.flush();
        byte[] content = ((ByteArrayOutputStream) this.underlyingStream()).toByteArray();
        for (int number = 1; true; number++) {
            try {
                this.write(content);
                return;
            } catch (IOException e) {
                String there = this.whose();
                if (this.identity.equals(there)) {
                    return; // written by a try whose answer was lost
                }
                if (there != null) {
                    FileAlreadyExistsException taken = new FileAlreadyExistsException(this.path.toString());
                    taken.initCause(e);
                    throw taken;
                }
                if (number == TRIES) {
                    throw e;
                }
                this.pause(FIRST << number);
            }
        }
    }

    public synchronized void cancel() {
        this.ended = true; // nothing of it has left this process
    }

    private void write(byte[] content) throws IOException {
        FSDataOutputStreamBuilder builder = this.system.createFile(this.path).overwrite(true);
        builder.opt(HEADER + IDENTITY, this.identity);
        builder.must(UNLESS_THERE, true);
        FSDataOutputStream stream = (FSDataOutputStream) builder.build();
        stream.write(content, 0, content.length);
        stream.close();
    }

    /** The identity of the object that has the name; null if there is none, empty if it has no identity. */
    private String whose() throws IOException {
        try {
            byte[] found = (byte[]) this.system.getXAttrs(this.path).get("header." + IDENTITY);
            return found == null ? "" : new String(found, StandardCharsets.UTF_8);
        } catch (FileNotFoundException e) {
            return null;
        }
    }

    private void pause(long milliseconds) throws IOException {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new java.io.InterruptedIOException(this.path.toString());
        }
    }
}
