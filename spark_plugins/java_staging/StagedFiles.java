package epochal;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.spark.internal.io.FileCommitProtocol;
import org.apache.spark.internal.io.FileNameSpec;
import scala.Option;

/**
 * Spark's tasks write to the folder itself, under names of each attempt, and nothing is moved.
 *
 * For a folder that nobody reads and that is given up as a whole if the job fails. The driver knows from the tasks that
 * were committed which files count, and removes those of other attempts. What comes later still, of a task that has
 * been given up for dead, is found out by the number of files and their bytes, which Spark reports.
 */
public final class StagedFiles extends FileCommitProtocol implements java.io.Serializable {
    private final String jobId;
    private final String folder;
    private ArrayList written; // by this attempt of a task

    public StagedFiles(String jobId, String folder, boolean dynamicPartitionOverwrite) {
        this.jobId = jobId;
        this.folder = folder;
    }

    public void setupJob(JobContext job) {
        // An object store has no folders to make.
    }

    public void commitJob(JobContext job, scala.collection.immutable.Seq tasks) {
        Set committed = new HashSet(); // names without folders: no other attempt's file has one of these
        scala.collection.Iterator messages = tasks.iterator();
        while (messages.hasNext()) {
            Iterator files = ((List) ((FileCommitProtocol.TaskCommitMessage) messages.next()).obj()).iterator();
            while (files.hasNext()) {
                committed.add(new Path((String) files.next()).getName());
            }
        }
        try {
            Path whole = new Path(folder);
            FileSystem system = whole.getFileSystem(job.getConfiguration());
            RemoteIterator found = system.listFiles(whole, true);
            while (found.hasNext()) {
                Path file = ((LocatedFileStatus) found.next()).getPath();
                if (!committed.contains(file.getName())) {
                    system.delete(file, false);
                }
            }
        } catch (FileNotFoundException nothing) {
            // No task has written a file.
        } catch (IOException fault) {
            throw new java.io.UncheckedIOException(fault);
        }
    }

    public void abortJob(JobContext job) {
        // The folder is removed as a whole.
    }

    public void setupTask(TaskAttemptContext task) {
        written = new ArrayList();
    }

    public String newTaskTempFile(TaskAttemptContext task, Option bucket, String ending) {
        return newTaskTempFile(task, bucket, new FileNameSpec("", ending));
    }

    public String newTaskTempFile(TaskAttemptContext task, Option bucket, FileNameSpec spec) {
        String number = String.format(
                "part-%05d", new Object[] {Integer.valueOf(task.getTaskAttemptID().getTaskID().getId())});
        String name = spec.prefix() + number + "-" + jobId + "-" + task.getTaskAttemptID().getId() + spec.suffix();
        Path parent = bucket.isDefined() ? new Path(folder, (String) bucket.get()) : new Path(folder);
        String file = new Path(parent, name).toString();
        written.add(file);
        return file;
    }

    public String newTaskTempFileAbsPath(TaskAttemptContext task, String place, String ending) {
        throw new UnsupportedOperationException("all files are staged in " + folder);
    }

    public String newTaskTempFileAbsPath(TaskAttemptContext task, String place, FileNameSpec spec) {
        throw new UnsupportedOperationException("all files are staged in " + folder);
    }

    public FileCommitProtocol.TaskCommitMessage commitTask(TaskAttemptContext task) {
        return new FileCommitProtocol.TaskCommitMessage(written);
    }

    public void abortTask(TaskAttemptContext task) {
        Iterator files = written.iterator();
        while (files.hasNext()) {
            try {
                Path file = new Path((String) files.next());
                file.getFileSystem(task.getConfiguration()).delete(file, false);
            } catch (IOException fault) {
                // It is not among those that count, and the driver removes it.
            }
        }
    }
}
