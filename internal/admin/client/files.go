package client

import (
	"bytes"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"os"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/ops"
)

// ReadKey reads an operator's key or the admin key from a file.
func ReadKey(file string) (string, error) {
	f, err := openKey(file)
	if err != nil {
		return "", fmt.Errorf("the key cannot be read: %w (--key-file)", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 4<<10))
	if err != nil {
		return "", fmt.Errorf("the key cannot be read: %w (--key-file)", err)
	}
	text = bytes.TrimSpace(text)
	if access.Check(access.OperatorKind, text) != nil && access.Check(access.AdminKind, text) != nil {
		return "", errors.New("the file of --key-file holds no operator's key: expected the one line that " +
			"`carstate operator add` prints")
	}
	return string(text), nil
}

// openKey refuses a file that others may read or change.
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

// ReadBackupKey reads the key of backups from a file, or from standard input if file is "-".
func ReadBackupKey(file string) (key string, err error) {
	in := os.Stdin
	if file != "-" {
		if in, err = openKey(file); err != nil {
			return "", fmt.Errorf("the key of the backup cannot be read: %w (--backup-key-file)", err)
		}
		defer in.Close()
	}
	text, err := io.ReadAll(io.LimitReader(in, 2*int64(access.BackupKind.Length())))
	if err != nil {
		return "", fmt.Errorf("the key of the backup cannot be read: %w (--backup-key-file)", err)
	}
	text = bytes.TrimSpace(text)
	if access.Check(access.BackupKind, text) != nil {
		return "", errors.New("the file of --backup-key-file holds no backup key: " +
			"expected the one line that `carstate operator backup-key` prints")
	}
	return string(text), nil
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
