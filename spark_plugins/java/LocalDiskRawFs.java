package epochal;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FsConstants;
import org.apache.hadoop.fs.FsServerDefaults;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.util.DataChecksum;

/** `LocalDisk` behind Hadoop's newer interface (AbstractFileSystem), without checksums. */
public class LocalDiskRawFs extends DelegateToFileSystem {
    // The values of Hadoop's own, which are private.
    private static final FsServerDefaults DEFAULTS =
        new FsServerDefaults(64L * 1024 * 1024, 512, 64 * 1024, (short) 1, 4096, false, 0L, DataChecksum.Type.CRC32);

    public LocalDiskRawFs(URI uri, Configuration conf) throws IOException, URISyntaxException {
        super(uri, new LocalDisk(), conf, FsConstants.LOCAL_FS_URI.getScheme(), false);
    }

    public int getUriDefaultPort() {
        return -1;
    }

    public FsServerDefaults getServerDefaults(Path path) throws IOException {
        return DEFAULTS;
    }

    public FsServerDefaults getServerDefaults() throws IOException {
        return DEFAULTS;
    }

    public boolean isValidName(String name) {
        return true;
    }

    Object key(Path path) throws IOException {
        return ((LocalDisk) this.fsImpl).key(path);
    }

    public void renameInternal(Path source, Path target) throws IOException {
        this.renameInternal(source, target, false);
    }

    public void renameInternal(Path source, Path target, boolean overwrite) throws IOException {
        this.checkPath(source);
        this.checkPath(target);
        ((LocalDisk) this.fsImpl).move(source, target, overwrite);
    }
}
