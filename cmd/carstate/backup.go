package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/store/backup"
	"example.org/carstate/internal/term"
)

type backupCommand struct {
	adminFlags
	File   string `arg:"" help:"File for the backup; in a directory, the file is named by the date and the time."`
	Force  bool   `help:"Replace an existing file."`
	Verify bool   `help:"Take no backup: read the file to its end and print what it contains. Only a restore verifies which service made it."`
	JSON   bool   `name:"json" help:"Print the content of the backup as one JSON value and nothing else."`
}

func (c *backupCommand) Run(ctx context.Context, w streams) error {
	if c.Verify {
		return c.verify(w)
	}
	admin, err := c.client()
	if err != nil {
		return err
	}
	if info, err := os.Stat(c.File); err == nil && info.IsDir() {
		c.File = filepath.Join(c.File, time.Now().UTC().Format("carstate-2006-01-02T150405Z.backup"))
	}
	if _, err := os.Lstat(c.File); err == nil && !c.Force {
		return errBackupExists
	}
	dir := filepath.Dir(c.File)
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(c.File)+"-")
	if err != nil {
		return fmt.Errorf("the backup cannot be written to the directory %s: %w", dir, access.WithoutPath(err))
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	metered, end := term.Metered(tmp, w.err)
	err = admin.Backup(ctx, metered)
	end()
	if err != nil {
		return err
	}
	if err := tmp.Sync(); err != nil {
		return fmt.Errorf("the backup cannot be written: %w", err)
	}
	if _, err := tmp.Seek(0, io.SeekStart); err != nil {
		return err
	}
	info, err := backup.Check(tmp)
	if err != nil {
		return errors.New("the backup is incomplete: see the service's log")
	}
	if err := c.publish(tmp.Name()); err != nil {
		return err
	}
	return c.show(w, info)
}

var errBackupExists = errors.New("the file exists: choose another name, or replace it with --force")

func (c *backupCommand) publish(tmp string) (err error) {
	if c.Force {
		err = os.Rename(tmp, c.File)
	} else {
		err = os.Link(tmp, c.File) // fails if the file exists
	}
	if err != nil && !c.Force && !errors.Is(err, fs.ErrExist) {
		// Most USB sticks have a file system without hard links.
		var claim *os.File
		if claim, err = os.OpenFile(c.File, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err == nil {
			claim.Close()
			err = os.Rename(tmp, c.File)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return errBackupExists
	}
	if err != nil {
		return fmt.Errorf("the backup cannot be renamed: %w", err)
	}
	dir, err := os.Open(filepath.Dir(c.File))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (c *backupCommand) verify(w streams) error {
	f, err := os.Open(c.File)
	if err != nil {
		return fmt.Errorf("the backup cannot be read: %w", err)
	}
	defer f.Close()
	info, err := backup.Check(f)
	if err != nil {
		return fmt.Errorf("this backup cannot be restored: %w", err)
	}
	return c.show(w, info)
}

func (c *backupCommand) show(w streams, info access.BackupInfo) error {
	return w.show(struct {
		access.BackupInfo
		File   string `json:"-"`
		Verify bool   `json:"-"`
	}{info, c.File, c.Verify})
}

func describeBackup(b access.BackupInfo) string {
	return fmt.Sprintf("%d records (states: %d, tokens: %d, sources: %d, tombstones: %d) of %s, written by carstate %s",
		b.Records, b.Kinds["state"], b.Kinds["token"], b.Kinds["source"], b.Kinds["tombstone"], day(b.Began), b.Version)
}

type restoreCommand struct {
	adminFlags
	File            string   `arg:"" help:"The backup."`
	BackupKeyFile   string   `placeholder:"FILE" help:"File with the backup key of the service that made the backup ${more_backup_key_file}"`
	Unauthenticated bool     `help:"Restore a file of any origin: if a stranger could write to it, ${more_unauthenticated}"`
	Forgotten       []string `xor:"a" placeholder:"FILE,…" help:"Receipts of carstate forget --json: vehicles that were forgotten after the backup stay forgotten."`
	Compare         bool     `xor:"a" help:"Restore nothing: print how the backup and the running service differ, which need not be empty."`
	JSON            bool     `name:"json" help:"Print the result as one JSON value and nothing else."`
}

func (c *restoreCommand) Run(ctx context.Context, w streams) error {
	admin, err := c.client()
	if err != nil {
		return err
	}
	options := access.RestoreOptions{Compare: c.Compare, Anybody: c.Unauthenticated}
	switch {
	case c.BackupKeyFile == "":
	case c.Unauthenticated:
		return usageError("--unauthenticated and --backup-key-file are mutually exclusive")
	default:
		if options.Key, err = client.ReadBackupKey(c.BackupKeyFile); err != nil {
			return err
		}
	}
	file, err := os.Open(c.File)
	if err != nil {
		return fmt.Errorf("the backup cannot be read: %w", err)
	}
	defer file.Close()
	info, err := backup.Check(file, options.Key)
	if err != nil {
		return err
	}
	if options.Anybody && !options.Compare {
		fmt.Fprintln(w.err, "WARNING: --unauthenticated: the origin of this backup is not checked. "+
			"If somebody could write to the file, "+
			"they may have added operators, sources and tokens of their own, which become valid, "+
			"or tombstones that make the service forget vehicles. "+
			"Check the output of carstate operator list, source list and token list afterwards.")
	}
	receipts, err := client.ReadReceipts(c.Forgotten)
	if err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	buried := 0
	if len(receipts) > 0 {
		r, err := admin.Bury(ctx, receipts)
		if err != nil {
			return err
		}
		buried = r.Buried
	}
	if !c.JSON {
		fmt.Fprintf(w.err, "%s\n", describeBackup(info))
	}
	p := term.NewProgress(w.err, info.Records, "records")
	report, err := admin.Restore(ctx, file, options, func(done, _ int) { p.Add(done - p.Done()) })
	p.End(err == nil)
	if err != nil {
		return err
	}
	return w.show(struct {
		access.RestoreReport
		Compare                    bool `json:"-"`
		Receipts, Buried, Repeated int  `json:"-"`
	}{report, c.Compare, len(receipts), buried, len(receipts) - buried})
}
