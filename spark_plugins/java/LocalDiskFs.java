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
     * The file first, and its checksums after it: a crash between the two leaves a file without checksums, which can be
     * read. So those that lie at the target go before. And if another one has overwritten the file meanwhile, nobody
     * knows whose the checksums are: they go too.
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
            return; // it had none
        }
        if (!moved.equals(raw.key(target))) {
            raw.delete(sums, false);
        }
    }
}
