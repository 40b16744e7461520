package epochal;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.orc.OrcFile;
import org.apache.orc.Reader;
import org.apache.parquet.HadoopReadOptions;
import org.apache.parquet.ParquetReadOptions;
import org.apache.parquet.format.Util;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.ParquetFileWriter;
import org.apache.parquet.hadoop.ParquetWriter;
import org.apache.parquet.hadoop.metadata.BlockMetaData;
import org.apache.parquet.hadoop.metadata.ColumnChunkMetaData;
import org.apache.parquet.hadoop.metadata.FileMetaData;
import org.apache.parquet.hadoop.util.HadoopInputFile;
import org.apache.parquet.hadoop.util.HadoopStreams;
import org.apache.parquet.io.DelegatingSeekableInputStream;
import org.apache.parquet.io.InputFile;
import org.apache.parquet.io.OutputFile;
import org.apache.parquet.io.PositionOutputStream;
import org.apache.parquet.io.SeekableInputStream;
import org.apache.parquet.schema.MessageType;

/**
 * What columnar.py asks of Parquet and ORC files: the rows that their footers tell, and one file of several, made of
 * their row groups or stripes as they are. Names come with a zero between them.
 *
 * Compiled when first used (java_code.py), by a compiler that knows neither lambdas nor generics.
 */
public final class ColumnarCalls {
    private static final long NOT_ALIKE = -1;
    private static final int BUFFER = 4096;
    private static final int TAIL = 1 << 16; // where most footers fit in
    private static final int PAR1 = 0x31524150; // the end of a file; that of an encrypted footer is another
    private static final long HELD_AT_MOST = 16 << 20; // what is larger is read as it is needed
    private static final int AHEAD = 3; // pieces that are read while others are copied
    private Configuration conf;
    private HadoopCalls files;

    public void use(Configuration conf, HadoopCalls files) {
        this.conf = conf;
        this.files = files;
    }

    /** The number of rows of each file, with a space between them. */
    public String rows(String format, String names) throws Exception {
        String[] files = names.split("\0");
        StringBuilder counts = new StringBuilder();
        for (int i = 0; i < files.length; i++) {
            counts.append(i == 0 ? "" : " ");
            counts.append(format.equals("orc") ? rowsOfOrc(files[i]) : rowsOfParquet(files[i]));
        }
        return counts.toString();
    }

    /** The length of the joined file; -1 if there is none, because the pieces are not alike or encrypted. */
    public long join(String format, String path, String names) throws Exception {
        Path whole = new Path(path);
        String[] pieces = names.split("\0");
        boolean joined = format.equals("orc") ? joinOrc(whole, pieces) : joinParquet(whole, pieces);
        return joined ? files.system(whole).getFileStatus(whole).getLen() : NOT_ALIKE;
    }

    /** By the end of the file, read at once: ParquetFileReader goes there three times, which costs on HDFS. */
    private long rowsOfParquet(String file) throws Exception {
        Path place = new Path(file);
        FileSystem system = files.system(place);
        long length = system.getFileStatus(place).getLen();
        FSDataInputStream stream = system.open(place);
        try {
            ByteBuffer end = end(stream, length, TAIL);
            int magic = end.getInt(end.limit() - 4);
            long footer = end.getInt(end.limit() - 8) & 0xFFFFFFFFL;
            if (magic != PAR1 || footer + 8 > length) {
                throw new IOException(file + " has no footer of Parquet's that can be read");
            }
            if (footer + 8 > end.limit()) {
                end = end(stream, length, (int) footer + 8);
            }
            int start = end.limit() - 8 - (int) footer;
            ByteArrayInputStream bytes = new ByteArrayInputStream(end.array(), start, (int) footer);
            return Util.readFileMetaData(bytes, true).getNum_rows();
        } finally {
            stream.close();
        }
    }

    private static ByteBuffer end(FSDataInputStream stream, long length, int size) throws Exception {
        byte[] bytes = new byte[(int) Math.min(length, (long) size)];
        stream.readFully(length - bytes.length, bytes);
        return ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    }

    private long rowsOfOrc(String file) throws Exception {
        Reader reader = OrcFile.createReader(new Path(file), OrcFile.readerOptions(conf));
        try {
            return reader.getNumberOfRows();
        } finally {
            reader.close();
        }
    }

    private boolean joinParquet(Path whole, String[] pieces) throws Exception {
        // Made once: to make them takes longer than to read a footer.
        ParquetReadOptions options = HadoopReadOptions.builder(conf).build();
        FileMetaData first = null;
        ParquetFileWriter writer = null;
        ReadAhead ahead = new ReadAhead(pieces, conf);
        try {
            for (int i = 0; i < pieces.length; i++) {
                InputFile piece = ahead.next();
                ParquetFileReader reader = ParquetFileReader.open(piece, options);
                try {
                    FileMetaData found = reader.getFileMetaData();
                    if (found.getEncryptionType() != FileMetaData.EncryptionType.UNENCRYPTED
                            || (first != null && !fits(first, found))) {
                        return false;
                    }
                    if (first == null) {
                        first = found;
                        writer = new ParquetFileWriter(
                                new Whole(files.system(whole), whole),
                                first.getSchema(),
                                ParquetFileWriter.Mode.OVERWRITE,
                                (long) ParquetWriter.DEFAULT_BLOCK_SIZE,
                                ParquetWriter.MAX_PADDING_SIZE_DEFAULT);
                        writer.start();
                    }
                    append(writer, first.getSchema(), piece, reader);
                } finally {
                    reader.close();
                }
            }
            writer.end(first.getKeyValueMetaData());
            return true;
        } finally {
            ahead.close();
            if (writer != null) {
                writer.close();
            }
        }
    }

    private boolean fits(FileMetaData first, FileMetaData other) {
        return first.getSchema().equals(other.getSchema())
                && first.getKeyValueMetaData().equals(other.getKeyValueMetaData());
    }

    /** Column by column, because whole row groups would come without their indexes and Bloom filters. */
    private void append(ParquetFileWriter writer, MessageType schema, InputFile piece, ParquetFileReader reader)
            throws Exception {
        SeekableInputStream stream = piece.newStream();
        try {
            List groups = reader.getRowGroups();
            for (int i = 0; i < groups.size(); i++) {
                BlockMetaData group = (BlockMetaData) groups.get(i);
                List columns = group.getColumns();
                writer.startBlock(group.getRowCount());
                for (int j = 0; j < columns.size(); j++) {
                    ColumnChunkMetaData column = (ColumnChunkMetaData) columns.get(j);
                    writer.appendColumnChunk(
                            schema.getColumnDescription(column.getPath().toArray()),
                            stream,
                            column,
                            reader.readBloomFilter(column),
                            reader.readColumnIndex(column),
                            reader.readOffsetIndex(column));
                }
                writer.endBlock();
            }
        } finally {
            stream.close();
        }
    }

    private boolean joinOrc(Path whole, String[] pieces) throws Exception {
        List paths = new ArrayList();
        for (int i = 0; i < pieces.length; i++) {
            paths.add(new Path(pieces[i]));
        }
        OrcFile.WriterOptions options = OrcFile.writerOptions(conf).fileSystem(files.system(whole)).overwrite(true);
        List joined = OrcFile.mergeFiles(whole, options, paths);
        return joined.size() == pieces.length;
    }

    /** What is made, by a client that does not wait long for HDFS's small blocks. */
    static final class Whole implements OutputFile {
        final FileSystem system;
        final Path path;

        Whole(FileSystem system, Path path) {
            this.system = system;
            this.path = path;
        }

        public PositionOutputStream create(long blockSize) throws IOException {
            return made(blockSize, false);
        }

        public PositionOutputStream createOrOverwrite(long blockSize) throws IOException {
            return made(blockSize, true);
        }

        private PositionOutputStream made(long blockSize, boolean overwrites) throws IOException {
            long size = Math.max(blockSize, defaultBlockSize()); // a row group should not lie in two of HDFS's blocks
            short copies = system.getDefaultReplication(path);
            return HadoopStreams.wrap(system.create(path, overwrites, BUFFER, copies, size));
        }

        public boolean supportsBlockSize() {
            return system instanceof DistributedFileSystem;
        }

        public long defaultBlockSize() {
            return system.getDefaultBlockSize(path);
        }

        public String getPath() {
            return path.toString();
        }
    }

    /** Files one after the other, of which the next are being read: on HDFS each place that is read by itself costs. */
    static final class ReadAhead {
        final String[] names;
        final Configuration conf;
        final Future[] found;
        final ExecutorService threads = Executors.newFixedThreadPool(AHEAD);
        int asked = 0;
        int given = 0;

        ReadAhead(String[] names, Configuration conf) {
            this.names = names;
            this.conf = conf;
            this.found = new Future[names.length];
        }

        InputFile next() throws Exception {
            while (asked < names.length && asked <= given + AHEAD) {
                found[asked] = threads.submit((Callable) new Held(names[asked], conf));
                asked++;
            }
            Future file = found[given];
            found[given] = null; // its bytes go when the caller is done with them
            given++;
            try {
                return (InputFile) file.get();
            } catch (ExecutionException failed) {
                throw failed.getCause() instanceof Exception ? (Exception) failed.getCause() : failed;
            }
        }

        void close() {
            threads.shutdownNow();
        }
    }

    /** A file that was read as a whole, unless it is large. */
    static final class Held implements Callable, InputFile {
        final String name;
        final Configuration conf;
        byte[] bytes;

        Held(String name, Configuration conf) {
            this.name = name;
            this.conf = conf;
        }

        public Object call() throws Exception {
            HadoopInputFile file = HadoopInputFile.fromPath(new Path(name), conf);
            if (file.getLength() > HELD_AT_MOST) {
                return file;
            }
            bytes = new byte[(int) file.getLength()];
            SeekableInputStream stream = file.newStream();
            try {
                stream.readFully(bytes);
            } finally {
                stream.close();
            }
            return this;
        }

        public long getLength() {
            return bytes.length;
        }

        public SeekableInputStream newStream() {
            return new HeldStream(new Bytes(bytes));
        }

        public String toString() {
            return name; // in the message if it is no Parquet file
        }
    }

    /** An array whose place can be chosen. */
    static final class Bytes extends ByteArrayInputStream {
        Bytes(byte[] bytes) {
            super(bytes);
        }

        long place() {
            return pos;
        }

        void move(long place) {
            pos = (int) place;
        }
    }

    /** The same, as Parquet's code reads it. */
    static final class HeldStream extends DelegatingSeekableInputStream {
        final Bytes bytes;

        HeldStream(Bytes bytes) {
            super(bytes);
            this.bytes = bytes;
        }

        public long getPos() {
            return bytes.place();
        }

        public void seek(long place) throws IOException {
            bytes.move(place);
        }
    }
}
