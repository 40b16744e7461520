package epochal;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.AbstractFileSystem;
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
     * read. So checksums of what is overwritten go before, and those that somebody left without their file make way.
     */
    public void renameInternal(Path source, Path target, boolean overwrite) throws IOException {
        AbstractFileSystem raw = this.getRawFs();
        boolean isFolder = raw.getFileLinkStatus(source).isDirectory();
        Path sums = getChecksumFile(target);
        if (overwrite && !isFolder && !source.equals(target)) {
            raw.delete(sums, false);
        }
        raw.rename(source, target, overwrite ? OVERWRITE : NONE);
        if (!isFolder) {
            try {
                raw.rename(getChecksumFile(source), sums, OVERWRITE);
            } catch (FileNotFoundException e) {
                raw.delete(sums, false);
            }
        }
    }
}
