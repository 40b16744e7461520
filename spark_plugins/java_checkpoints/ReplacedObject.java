package epochal;

import java.io.IOException;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;

/** A file of a checkpoint on S3 that may replace another: state. It is uploaded while it is written, and appears whole. */
class ReplacedObject extends CheckpointFileManager.CancellableFSDataOutputStream {
    private final FSDataOutputStream stream;
    private boolean ended = false;

    ReplacedObject(FSDataOutputStream stream) throws IOException {
        super(stream);
        this.stream = stream;
    }

    public synchronized void close() throws IOException {
        if (!this.ended) {
            this.ended = true;
            this.stream.close();
        }
    }

    public synchronized void cancel() {
        if (!this.ended) {
            this.ended = true;
            this.stream.abort();
        }
    }
}
