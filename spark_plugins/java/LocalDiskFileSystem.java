package epochal;

import org.apache.hadoop.fs.LocalFileSystem;

/** `LocalDisk` with checksums, for ``fs.file.impl``: Spark's writers and readers. */
public class LocalDiskFileSystem extends LocalFileSystem {
    public LocalDiskFileSystem() {
        super(new LocalDisk());
    }
}
