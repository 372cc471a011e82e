package drivelog

import "io"

// ReadSmall has limits of 64 KiB in all, 4 KiB a row and 1,000 rows.
func ReadSmall(r io.Reader) (*Drive, error) {
	return readWithin(r, limits{unpacked: 1 << 16, line: 1 << 12, rows: 1000}, nil)
}
