"""Where files are kept: local disks, HDFS and other Hadoop file systems, and the register of who writes to a folder."""
