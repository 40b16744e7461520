package epochal;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;

/** `LocalDisk` with checksums, for ``fs.AbstractFileSystem.file.impl``: Spark's checkpoints, logs and state. */
public class LocalDiskFs extends ChecksumFs {
    private static final Options.Rename[] OVERWRITE = new Options.Rename[] {Options.Rename.OVERWRITE};
    private static final Options.Rename[] NONE = new Options.Rename[] {Options.Rename.NONE};

    public LocalDiskFs(URI uri, Configuration conf) throws IOException, URISyntaxException {
        super(new LocalDiskRawFs(uri, conf));
    }

    public void renameInternal(Path source, Path target) throws IOException {
        this.renameInternal(source, target, false);
    }

    /**
     * Rename the file first and its checksums after it: a crash in between leaves a file without checksums, which can be
     * read. So checksums at the target are deleted before. If another process has overwritten the file meanwhile, the
     * checksums may not belong to it, so they are deleted too.
     */
    public void renameInternal(Path source, Path target, boolean overwrite) throws IOException {
        LocalDiskRawFs raw = (LocalDiskRawFs) this.getRawFs();
        Options.Rename[] how = overwrite ? OVERWRITE : NONE;
        if (raw.getFileLinkStatus(source).isDirectory() || source.equals(target)) {
            raw.rename(source, target, how);
            return;
        }
        Path sums = getChecksumFile(target);
        Object moved = raw.key(source);
        if (overwrite || raw.key(target) == null) {
            raw.delete(sums, false);
        }
        raw.rename(source, target, how);
        try {
            raw.rename(getChecksumFile(source), sums, OVERWRITE);
        } catch (FileNotFoundException e) {
            return; // the file had no checksums
        }
        if (!moved.equals(raw.key(target))) {
            raw.delete(sums, false);
        }
    }
}
