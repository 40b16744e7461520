package epochal;

import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.nio.file.AtomicMoveNotSupportedException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.BasicFileAttributes;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSLinkResolver;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.ParentNotDirectoryException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Hadoop's local file system, without a forked process for each file.
 *
 * <p>Hadoop runs commands: chmod to set permissions, ls to read them, readlink to read links. This class uses java.nio.
 * A rename that must not overwrite is one step, a hard link, at which exactly one process succeeds. Hadoop's own first
 * checks that the name is free and then renames, so two can succeed. Everything else is Hadoop's.
 *
 * <p>Janino compiles it, so it has no lambdas, and explicit arrays instead of variable arguments.
 */
public class LocalDisk extends RawLocalFileSystem {
    private static final Logger LOG = LoggerFactory.getLogger(LocalDisk.class);
    private static final LinkOption[] FOLLOW = new LinkOption[0];
    private static final LinkOption[] NO_FOLLOW = new LinkOption[] {LinkOption.NOFOLLOW_LINKS};
    private static final int PERMISSIONS = 01777;
    private static final int OF_FOLDERS = 06000; // setuid and setgid
    private static boolean hasWarnedOfLinks = false;

    private long blockSize;

    public void initialize(URI uri, Configuration conf) throws IOException {
        super.initialize(uri, conf);
        this.blockSize = this.getDefaultBlockSize(new Path(uri));
    }

    public void setPermission(Path path, FsPermission permission) throws IOException {
        java.nio.file.Path place = this.nio(path);
        try {
            int mode = permission.toShort() & PERMISSIONS;
            if (Files.isDirectory(place, FOLLOW)) {
                // As chmod does: the setuid and setgid bits of a folder stay.
                mode |= ((Integer) Files.getAttribute(place, "unix:mode", FOLLOW)).intValue() & OF_FOLDERS;
            }
            Files.setAttribute(place, "unix:mode", Integer.valueOf(mode), FOLLOW);
        } catch (NoSuchFileException e) {
            throw missing(path);
        }
    }

    public FileStatus getFileStatus(Path path) throws IOException {
        File file = this.pathToFile(path);
        if (!file.exists()) {
            throw missing(path);
        }
        Path full = new Path(file.getPath()).makeQualified(this.getUri(), this.getWorkingDirectory());
        return LocalDiskStatus.of(file, full, this.blockSize);
    }

    public FileStatus[] listStatus(Path path) throws IOException {
        if (this.pathToFile(path).isFile()) {
            return new FileStatus[] {this.getFileStatus(path)};
        }
        return super.listStatus(path);
    }

    public FileStatus getFileLinkStatus(Path path) throws IOException {
        FileStatus found = this.linkStatus(path);
        if (found.isSymlink()) {
            found.setSymlink(FSLinkResolver.qualifySymlinkTarget(this.getUri(), found.getPath(), found.getSymlink()));
        }
        return found;
    }

    public Path getLinkTarget(Path path) throws IOException {
        return this.linkStatus(path).getSymlink();
    }

    protected void rename(Path source, Path target, Options.Rename[] options) throws IOException {
        boolean overwrite = false;
        for (int i = 0; options != null && i < options.length; i++) {
            overwrite |= options[i] == Options.Rename.OVERWRITE;
        }
        this.move(source, target, overwrite);
    }

    /** Rename a file or folder. Of several that rename to one name, one succeeds; with overwrite, the last one wins. */
    public void move(Path source, Path target, boolean overwrite) throws IOException {
        java.nio.file.Path from = this.nio(source);
        java.nio.file.Path to = this.nio(target);
        if (source.equals(target)) {
            throw taken(target);
        }
        if (Files.isDirectory(from, NO_FOLLOW)) {
            this.moveAsHadoop(source, target, overwrite);
            return;
        }
        if (!Files.exists(from, NO_FOLLOW)) {
            throw new FileNotFoundException("rename source " + source + " not found.");
        }
        this.checkTarget(source, target);
        if (overwrite) {
            if (Files.isSymbolicLink(from) && Files.exists(from, FOLLOW) && Files.exists(to, FOLLOW)
                && Files.isSameFile(from, to)) {
                throw taken(target); // a symbolic link moved onto its own target would dangle
            }
            try {
                Files.move(from, to, new StandardCopyOption[] {StandardCopyOption.ATOMIC_MOVE});
            } catch (AtomicMoveNotSupportedException e) {
                this.moveAsHadoop(source, target, true); // to another device: copy
            }
            return;
        }
        try {
            this.link(from, to);
        } catch (java.nio.file.FileAlreadyExistsException e) {
            throw taken(target);
        } catch (NoSuchFileException e) {
            throw new FileNotFoundException("rename source " + source + " not found.");
        } catch (UnsupportedOperationException e) {
            this.moveWithoutLinks(source, target, e);
            return;
        } catch (IOException e) {
            this.moveWithoutLinks(source, target, e);
            return;
        }
        Files.deleteIfExists(from);
    }

    /** The identity of a file, independent of its name; null if there is no file. */
    public Object key(Path path) throws IOException {
        java.nio.file.Path place = this.nio(path);
        if (!Files.exists(place, NO_FOLLOW)) {
            return null;
        }
        return ((BasicFileAttributes) Files.readAttributes(place, BasicFileAttributes.class, NO_FOLLOW)).fileKey();
    }

    protected void link(java.nio.file.Path from, java.nio.file.Path to) throws IOException {
        Files.createLink(to, from);
    }

    /** Some file systems have no hard links (FAT, some network disks): there two can succeed, as with Hadoop's own. */
    private void moveWithoutLinks(Path source, Path target, Exception why) throws IOException {
        boolean first;
        synchronized (LocalDisk.class) {
            first = !hasWarnedOfLinks;
            hasWarnedOfLinks = true;
        }
        if (first) {
            LOG.warn("no hard link could be made of " + source + " (" + why + "): where that is so, a rename is not one "
                + "step, and two drivers on one checkpoint can both write the same epoch's offsets");
        }
        this.moveAsHadoop(source, target, false);
    }

    private void moveAsHadoop(Path source, Path target, boolean overwrite) throws IOException {
        Options.Rename option = overwrite ? Options.Rename.OVERWRITE : Options.Rename.NONE;
        super.rename(source, target, new Options.Rename[] {option});
    }

    private void checkTarget(Path source, Path target) throws IOException {
        Path parent = target.getParent();
        File folder = parent == null ? null : this.pathToFile(parent);
        if (folder == null || !folder.exists()) {
            throw new FileNotFoundException("rename destination parent " + parent + " not found.");
        }
        if (!folder.isDirectory()) {
            throw new ParentNotDirectoryException("rename destination parent " + parent + " is a file.");
        }
        if (Files.isDirectory(this.nio(target), NO_FOLLOW)) {
            throw new IOException("Source " + source + " Destination " + target
                + " both should be either file or directory");
        }
    }

    private FileStatus linkStatus(Path path) throws IOException {
        java.nio.file.Path place = this.nio(path);
        if (!Files.isSymbolicLink(place)) {
            return this.getFileStatus(path);
        }
        Path target = new Path(Files.readSymbolicLink(place).toString());
        if (!Files.exists(place, FOLLOW)) {
            return new FileStatus(0L, false, 0, 0L, 0L, 0L, FsPermission.getDefault(), "", "", target, path);
        }
        FileStatus found = this.getFileStatus(path);
        return new FileStatus(found.getLen(), false, found.getReplication(), found.getBlockSize(),
            found.getModificationTime(), found.getAccessTime(), found.getPermission(), found.getOwner(),
            found.getGroup(), target, path);
    }

    private java.nio.file.Path nio(Path path) {
        return this.pathToFile(path).toPath();
    }

    private static FileNotFoundException missing(Path path) {
        return new FileNotFoundException("File " + path + " does not exist");
    }

    private static FileAlreadyExistsException taken(Path path) {
        return new FileAlreadyExistsException("rename destination " + path + " already exists.");
    }
}
