package epochal;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.commons.io.IOUtils;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.ipc.RemoteException;

/**
 * The file operations of hadoop.py, each of them one call from Python.
 *
 * From Python every step of a Java expression is a message to the JVM and back: a listing of the journal took
 * hundreds of them. Compiled when a session is first used, by the compiler that Spark brings for its own code
 * (java_code.py), which knows neither lambdas nor generics.
 */
public final class HadoopCalls {
    private static final int BUFFER = 1 << 20;
    private static final int THREADS = 8; // for listings
    private static final String DELAY = "dfs.client.block.write.locateFollowingBlock.initial.delay.ms";
    private static final String TRIES = "dfs.client.block.write.locateFollowingBlock.retries";
    private static final Map CLUSTERS = new HashMap();
    private Configuration conf;
    private final Map contexts = new HashMap();

    public void use(Configuration conf) {
        this.conf = conf;
    }

    /** Whether this made the file: written under another name, which is then changed. A null means: try again. */
    public Boolean create(String path, String prefix, byte[] data, boolean durable) throws Exception {
        Path place = new Path(path);
        FileSystem system = system(place);
        Path temporary = new Path(place.getParent(), prefix + place.getName() + "-" + UUID.randomUUID());
        try {
            write(system, temporary, data, durable);
            rename(temporary, place);
        } catch (IOException fault) {
            Exception known = unwrapped(fault);
            if (known instanceof FileNotFoundException) {
                return null; // somebody has swept the temporary file
            }
            boolean refused = known instanceof FileAlreadyExistsException;
            boolean taken = refused || system.exists(place);
            system.delete(temporary, false);
            if (!taken) {
                throw fault;
            }
            // The answer to our own rename may be what was lost: then it is there, to the letter.
            return Boolean.valueOf(!refused && Arrays.equals(read(path), data));
        }
        return Boolean.TRUE;
    }

    private static void write(FileSystem system, Path path, byte[] data, boolean durable) throws Exception {
        boolean hdfs = system instanceof DistributedFileSystem;
        FSDataOutputStream stream =
                hdfs && durable ? onDisk((DistributedFileSystem) system, path) : system.create(path, false);
        try {
            stream.write(data);
            if (durable && !hdfs) {
                stream.hsync();
            }
        } finally {
            stream.close();
        }
    }

    /** A file that its DataNodes bring to their disks when it is closed; hsync asks them, and the NameNode, before. */
    private static FSDataOutputStream onDisk(DistributedFileSystem system, Path path) throws Exception {
        DistributedFileSystem.HdfsDataOutputStreamBuilder builder = system.createFile(path);
        builder.recursive();
        builder.overwrite(false);
        builder.syncBlock();
        return builder.build();
    }

    public byte[] read(String path) throws Exception {
        Path place = new Path(path);
        FSDataInputStream stream = system(place).open(place);
        try {
            return IOUtils.toByteArray(stream);
        } finally {
            stream.close();
        }
    }

    public byte[] head(String path, int size) throws Exception {
        Path place = new Path(path);
        FSDataInputStream stream = system(place).open(place);
        try {
            return stream.readNBytes(size);
        } finally {
            stream.close();
        }
    }

    /** A file to be read a piece at a time. */
    public FSDataInputStream open(String path) throws Exception {
        Path place = new Path(path);
        return system(place).open(place);
    }

    /** A new file to be written a piece at a time. */
    public FSDataOutputStream begin(String path) throws Exception {
        Path place = new Path(path);
        return system(place).create(place, false);
    }

    /** The length of a file, or -1 if there is none. */
    public long length(String path) throws Exception {
        Path place = new Path(path);
        try {
            return system(place).getFileStatus(place).getLen();
        } catch (FileNotFoundException none) {
            return -1;
        }
    }

    /** When a file was written last, in milliseconds since 1970, or -1 if there is none. */
    public long modified(String path) throws Exception {
        Path place = new Path(path);
        try {
            return system(place).getFileStatus(place).getModificationTime();
        } catch (FileNotFoundException none) {
            return -1;
        }
    }

    /** What is in a folder, or every file below it: "length kind version name" with a zero after each. */
    public String list(String path, boolean below) throws Exception {
        Path place = new Path(path);
        StringBuilder answer = new StringBuilder();
        list(place, below, answer);
        return answer.toString();
    }

    /** A level of folders at a time, each side by side: an epoch may have written thousands of them. */
    private void list(Path root, boolean below, StringBuilder answer) throws Exception {
        boolean keepsTimes = system(root) instanceof DistributedFileSystem; // whatever a file is renamed to
        List folders = new ArrayList();
        List prefixes = new ArrayList();
        folders.add(root);
        prefixes.add("");
        while (!folders.isEmpty()) {
            Object[] found = listed((Path[]) folders.toArray(new Path[0]));
            List deeper = new ArrayList();
            List longer = new ArrayList();
            for (int i = 0; i < found.length; i++) {
                if (found[i] instanceof Exception) {
                    throw (Exception) found[i];
                }
                FileStatus[] entries = (FileStatus[]) found[i];
                for (int j = 0; j < entries.length; j++) {
                    String name = prefixes.get(i) + entries[j].getPath().getName();
                    if (entries[j].isDirectory() && below) {
                        deeper.add(entries[j].getPath());
                        longer.add(name + "/");
                    } else {
                        answer.append(entries[j].getLen()).append(entries[j].isDirectory() ? " d " : " f ");
                        answer.append(keepsTimes ? String.valueOf(entries[j].getModificationTime()) : "");
                        answer.append(' ').append(name).append('\0');
                    }
                }
            }
            folders = deeper;
            prefixes = longer;
        }
    }

    /** What is in each of these folders, or why it could not be listed. */
    private Object[] listed(final Path[] folders) throws Exception {
        final Object[] found = new Object[folders.length];
        final AtomicInteger next = new AtomicInteger();
        final HadoopCalls calls = this;
        Thread[] threads = new Thread[Math.min(THREADS, folders.length)];
        for (int i = 1; i < threads.length; i++) {
            threads[i] = new Thread("epochal-files-" + i) {
                public void run() {
                    calls.listNext(folders, found, next);
                }
            };
            threads[i].setDaemon(true);
            threads[i].start();
        }
        listNext(folders, found, next);
        for (int i = 1; i < threads.length; i++) {
            threads[i].join();
        }
        return found;
    }

    /** What one of the threads does: the next folder, until there is none. */
    public void listNext(Path[] folders, Object[] found, AtomicInteger next) {
        for (int at = next.getAndIncrement(); at < folders.length; at = next.getAndIncrement()) {
            try {
                found[at] = system(folders[at]).listStatus(folders[at]);
            } catch (FileNotFoundException none) {
                found[at] = new FileStatus[0];
            } catch (Exception fault) {
                found[at] = fault;
            } catch (Error fault) {
                found[at] = new IOException(fault);
            }
        }
    }

    /** How many lines a file has, also one at the end that does not end. */
    public long lines(String path) throws Exception {
        Path place = new Path(path);
        byte[] buffer = new byte[1 << 16];
        long lines = 0;
        byte last = '\n';
        FSDataInputStream stream = system(place).open(place);
        try {
            for (int length = stream.read(buffer); length > 0; length = stream.read(buffer)) {
                for (int i = 0; i < length; i++) {
                    lines += buffer[i] == '\n' ? 1 : 0;
                }
                last = buffer[length - 1];
            }
        } finally {
            stream.close();
        }
        return last == '\n' ? lines : lines + 1;
    }

    public void rename(String source, String target) throws Exception {
        rename(new Path(source), new Path(target));
    }

    /** FileSystem.rename answers false for everything that can go wrong; these two say what it was. */
    private void rename(Path source, Path target) throws Exception {
        FileSystem system = system(source);
        Options.Rename[] strict = new Options.Rename[] {Options.Rename.NONE};
        if (system instanceof DistributedFileSystem) {
            ((DistributedFileSystem) system).rename(source, target, strict);
        } else {
            context(source).rename(source, target, strict);
        }
    }

    /** Files are added to the end of the first one; they are gone then. */
    public void concat(String path, String names) throws Exception {
        concat(path, names.split("\0"));
    }

    private void concat(String path, String[] others) throws Exception {
        Path[] paths = new Path[others.length];
        for (int i = 0; i < others.length; i++) {
            paths[i] = new Path(others[i]);
        }
        Path place = new Path(path);
        system(place).concat(place, paths);
    }

    /** Copies files into one, all but the first without their first bytes. */
    public void copy(String path, String names, long skip) throws Exception {
        String[] sources = names.split("\0");
        Path place = new Path(path);
        byte[] buffer = new byte[BUFFER];
        FSDataOutputStream whole = system(place).create(place, true);
        try {
            for (int i = 0; i < sources.length; i++) {
                Path source = new Path(sources[i]);
                FSDataInputStream part = system(source).open(source);
                try {
                    part.seek(i == 0 ? 0 : skip);
                    IOUtils.copyLarge(part, whole, buffer);
                } finally {
                    part.close();
                }
            }
            whole.hsync();
        } finally {
            whole.close();
        }
    }

    public void makeFolder(String path) throws Exception {
        Path place = new Path(path);
        system(place).mkdirs(place);
    }

    public void delete(String path) throws Exception {
        Path place = new Path(path);
        system(place).delete(place, true);
    }

    /**
     * One operation for many files, so many at once and in no order: a zero between paths, two between steps.
     *
     * Answers for each step, with a zero after it: "=" and the result, "!" with the class and the message of what went
     * wrong, or "-" if it was not begun. A missing file or a name that is taken is an answer; after any other fault no
     * further step is begun. Nothing is at work any more when this returns.
     */
    public String each(String operation, String work, int atOnce) throws Exception {
        final String[] steps = work.split("\0\0");
        final String[] answers = new String[steps.length];
        final AtomicInteger next = new AtomicInteger();
        final AtomicBoolean failed = new AtomicBoolean();
        final String todo = operation;
        final HadoopCalls calls = this;
        Thread[] threads = new Thread[Math.min(atOnce, steps.length)];
        for (int i = 0; i < threads.length; i++) {
            threads[i] = new Thread("epochal-files-" + i) {
                public void run() {
                    calls.work(todo, steps, answers, next, failed);
                }
            };
            threads[i].setDaemon(true);
            threads[i].start();
        }
        for (int i = 0; i < threads.length; i++) {
            threads[i].join();
        }
        StringBuilder answer = new StringBuilder();
        for (int i = 0; i < answers.length; i++) {
            answer.append(answers[i] == null ? "-" : answers[i].replace('\0', ' ')).append('\0');
        }
        return answer.toString();
    }

    /** What one of the threads does: the next step, until there is none. */
    public void work(String operation, String[] steps, String[] answers, AtomicInteger next, AtomicBoolean failed) {
        for (int step = next.getAndIncrement(); step < steps.length && !failed.get(); step = next.getAndIncrement()) {
            answers[step] = answer(operation, steps[step], failed);
        }
    }

    private String answer(String operation, String step, AtomicBoolean failed) {
        try {
            return "=" + one(operation, step.split("\0"));
        } catch (Exception fault) {
            Exception known = unwrapped(fault);
            boolean missed = known instanceof FileNotFoundException || known instanceof FileAlreadyExistsException;
            if (!missed) {
                failed.set(true);
            }
            return "!" + kind(known) + " " + known.getMessage();
        } catch (Error fault) {
            failed.set(true);
            return "!" + fault.getClass().getName() + " " + fault.getMessage();
        }
    }

    private static String kind(Exception fault) {
        return fault instanceof RemoteException ? ((RemoteException) fault).getClassName() : fault.getClass().getName();
    }

    private String one(String operation, String[] paths) throws Exception {
        if ("rename".equals(operation)) {
            rename(paths[0], paths[1]);
        } else if ("concat".equals(operation)) {
            concat(paths[0], (String[]) Arrays.copyOfRange(paths, 1, paths.length));
        } else if ("length".equals(operation)) {
            return String.valueOf(length(paths[0]));
        } else if ("lines".equals(operation)) {
            return String.valueOf(lines(paths[0]));
        } else if ("makeFolder".equals(operation)) {
            makeFolder(paths[0]);
        } else if ("delete".equals(operation)) {
            delete(paths[0]);
        } else if ("create".equals(operation)) {
            byte[] data = Base64.getDecoder().decode(paths[3].substring(1)); // after a sign, so that none is empty
            return String.valueOf(create(paths[0], paths[1], data, Boolean.parseBoolean(paths[2])));
        } else {
            throw new IllegalArgumentException(operation);
        }
        return "";
    }

    private static Exception unwrapped(Exception fault) {
        return fault instanceof RemoteException ? ((RemoteException) fault).unwrapRemoteException() : fault;
    }

    /** Public, because a class that another loader has is of another package. */
    public FileSystem system(Path path) throws Exception {
        return "hdfs".equals(path.toUri().getScheme()) ? impatient(path.toUri(), conf) : path.getFileSystem(conf);
    }

    /**
     * HDFS by a client of our own, one for each cluster. Who closes a file before the DataNode has reported its block
     * waits, 400 ms at first unless set otherwise, which a small file always does. Ours begins with 1 ms, and gives up
     * no sooner.
     */
    private static synchronized FileSystem impatient(URI uri, Configuration conf) throws Exception {
        String key = uri.getScheme() + "://" + uri.getAuthority();
        FileSystem found = (FileSystem) CLUSTERS.get(key);
        if (found == null) {
            Configuration ours = new Configuration(conf);
            ours.setInt(DELAY, Math.min(conf.getInt(DELAY, 400), 1));
            ours.setInt(TRIES, Math.max(conf.getInt(TRIES, 5), 14)); // each waits twice as long: 16 s in all
            found = FileSystem.newInstance(uri, ours);
            CLUSTERS.put(key, found);
        }
        return found;
    }

    /** A context opens a connection of its own, so one for each file system is kept. */
    private synchronized FileContext context(Path path) throws Exception {
        String key = path.toUri().getScheme() + "://" + path.toUri().getAuthority();
        FileContext found = (FileContext) contexts.get(key);
        if (found == null) {
            found = FileContext.getFileContext(path.toUri(), conf);
            contexts.put(key, found);
        }
        return found;
    }
}
