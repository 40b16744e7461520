package epochal;

import java.io.DataOutput;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.PosixFileAttributes;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;

/** The status of a local file. Permissions and owners are read only on request: few callers need them. */
public class LocalDiskStatus extends FileStatus {
    private static final LinkOption[] FOLLOW = new LinkOption[0];

    private boolean loaded = false;

    private LocalDiskStatus(BasicFileAttributes found, Path path, long blockSize) {
        super(found.isDirectory() ? directorySize(path) : found.size(), found.isDirectory(), 1, blockSize,
            found.lastModifiedTime().toMillis(), found.lastAccessTime().toMillis(), null, null, null, path);
    }

    static LocalDiskStatus of(File file, Path path, long blockSize) throws IOException {
        try {
            BasicFileAttributes found =
                (BasicFileAttributes) Files.readAttributes(file.toPath(), BasicFileAttributes.class, FOLLOW);
            return new LocalDiskStatus(found, path, blockSize);
        } catch (NoSuchFileException e) {
            throw new FileNotFoundException("File " + path + " does not exist");
        }
    }

    private static long directorySize(Path path) {
        return new File(path.toUri().getPath()).length();
    }

    public FsPermission getPermission() {
        this.load();
        return super.getPermission();
    }

    public String getOwner() {
        this.load();
        return super.getOwner();
    }

    public String getGroup() {
        this.load();
        return super.getGroup();
    }

    public void write(DataOutput out) throws IOException {
        this.load();
        super.write(out);
    }

    private synchronized void load() {
        if (this.loaded) {
            return;
        }
        java.nio.file.Path place = new File(this.getPath().toUri().getPath()).toPath();
        try {
            PosixFileAttributes found =
                (PosixFileAttributes) Files.readAttributes(place, PosixFileAttributes.class, FOLLOW);
            Integer mode = (Integer) Files.getAttribute(place, "unix:mode", FOLLOW);
            this.setPermission(new FsPermission((short) (mode.intValue() & 01777)));
            this.setOwner(found.owner().getName());
            this.setGroup(found.group().getName());
        } catch (IOException e) {
            // As Hadoop does if the file no longer exists.
            this.setPermission(null);
            this.setOwner(null);
            this.setGroup(null);
        }
        this.loaded = true;
    }
}
