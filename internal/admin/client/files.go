package client

import (
	"bytes"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/ops"
)

func ReadKey(file string) (string, error) {
	return readKey(file, "the key cannot be read: %w (--key-file)", "the file of --key-file holds no operator's key: "+
		"expected the one line that `carstate operator add` prints", access.OperatorKind, access.AdminKind)
}

func ReadBackupKey(file string) (key string, err error) {
	return readKey(file, "the key of the backup cannot be read: %w (--backup-key-file)",
		"the file of --backup-key-file holds no backup key: "+
			"expected the one line that `carstate operator backup-key` prints", access.BackupKind)
}

// readKey returns a key of one of the kinds from a file, or from standard input if file is "-".
// failed formats an error of reading; none is the text without such a key.
func readKey(file, failed, none string, kinds ...access.Kind) (key string, err error) {
	in := os.Stdin
	if file != "-" {
		if in, err = openKey(file); err != nil {
			return "", fmt.Errorf(failed, err)
		}
		defer in.Close()
	}
	text, err := io.ReadAll(io.LimitReader(in, 4<<10))
	if err != nil {
		return "", fmt.Errorf(failed, err)
	}
	text = bytes.TrimSpace(text)
	if !slices.ContainsFunc(kinds, func(k access.Kind) bool { return access.Check(k, text) == nil }) {
		return "", errors.New(none)
	}
	return string(text), nil
}

func openKey(file string) (*os.File, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		err = fmt.Errorf("%s can be read or changed by others: run chmod 600 %[1]s", file)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ReadReceipts reads what `carstate forget --json` has written: one JSON value after the other.
func ReadReceipts(files []string) (all []access.ForgetReceipt, err error) {
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("the receipts cannot be read: %w", err)
		}
		defer f.Close()
		d := jsontext.NewDecoder(f)
		for n := 1; ; n++ {
			var r access.ForgetReceipt
			err := json.UnmarshalDecode(d, &r)
			if err == io.EOF && n == 1 {
				// FILE is empty if `carstate forget --json > FILE` has failed.
				return nil, fmt.Errorf("%s holds no receipt: the restore would bring forgotten vehicles back", name)
			}
			if err == io.EOF {
				break
			}
			if err == nil {
				err = ops.CheckReceipt(r)
			}
			if err != nil {
				return nil, fmt.Errorf("value %d of the receipts is not a receipt of carstate forget --json", n)
			}
			all = append(all, r)
		}
	}
	return all, nil
}
