package ops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"example.org/carstate/internal/access"
)

const keyFile = "admin.key"

func KeyFile(dir string) string { return filepath.Join(dir, keyFile) }

// LoadOrCreateKey never replaces a file that cannot be used (see [CheckKey]).
func LoadOrCreateKey(dir string) (secret string, err error) {
	secret, err = readOwnKey(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return secret, err
	}
	secret, _ = access.NewSecret(access.AdminKind)
	// os.Link replaces no file: it fails with [fs.ErrExist].
	if err := placeKey(dir, secret, os.Link); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("the admin key cannot be written: %w", err)
	}
	// Another process may have been first.
	return readOwnKey(dir)
}

func LoadKey(dir string) (secret string, err error) {
	secret, _, err = readKey(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("there is no admin key in %s: is this the data directory of a service that was "+
			"started here? (--data-dir)", dir)
	}
	if errors.Is(err, fs.ErrPermission) {
		return "", fmt.Errorf("%w: run this as the user who runs carstate, or give an operator's key (--key-file)", err)
	}
	return secret, err
}

// CheckKey refuses a link, rights for others, another owner, and a file without a key; no file is
// fine.
func CheckKey(dir string) error {
	if _, err := os.Lstat(KeyFile(dir)); err != nil {
		return nil
	}
	_, err := readOwnKey(dir)
	return err
}

// readOwnKey refuses a file of another user, who knows the key, even if the service runs as root.
func readOwnKey(dir string) (string, error) {
	secret, owner, err := readKey(dir)
	if err == nil && owner != os.Geteuid() {
		return "", fmt.Errorf("%s belongs to another user (uid %d), who can read it: move it away and start the "+
			"service again for a new one", KeyFile(dir), owner)
	}
	return secret, err
}

func readKey(dir string) (secret string, owner int, err error) {
	name := KeyFile(dir)
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	switch {
	case errors.Is(err, syscall.ELOOP):
		return "", 0, fmt.Errorf("%s is a symbolic link: move it away and start the service again for a new key", name)
	case errors.Is(err, fs.ErrPermission):
		return "", 0, fmt.Errorf("the admin key is another user's: %w", err)
	case err != nil:
		return "", 0, fmt.Errorf("the admin key cannot be read: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", 0, fmt.Errorf("the admin key cannot be read: %w", err)
	case !info.Mode().IsRegular():
		return "", 0, fmt.Errorf("%s is not a file: move it away and start the service again", name)
	case info.Mode().Perm()&0o077 != 0:
		return "", 0, fmt.Errorf("%s can be read or changed by others: run chmod 600 %s", name, name)
	}
	text, err := io.ReadAll(io.LimitReader(f, int64(2*access.AdminKind.Length())))
	if err != nil {
		return "", 0, fmt.Errorf("the admin key cannot be read: %w", err)
	}
	text = bytes.TrimSpace(text)
	if err := access.Check(access.AdminKind, text); err != nil {
		return "", 0, fmt.Errorf("%s holds no admin key: %w; move it away and start the service again for a new one",
			name, err)
	}
	return string(text), int(info.Sys().(*syscall.Stat_t).Uid), nil
}

func placeKey(dir, secret string, place func(from, to string) error) error {
	f, err := os.CreateTemp(dir, "."+keyFile+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(secret + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := place(f.Name(), KeyFile(dir)); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close()) // makes the entry durable
}

// RotateAdminKey puts the new key only into the file. The key in the file is valid even after an
// error.
func (p *Operations) RotateAdminKey(ctx context.Context, by access.Actor) (file string, err error) {
	if !by.Admin {
		return "", errAdminOnly
	}
	p.rotating.Lock()
	defer p.rotating.Unlock()
	secret, _ := access.NewSecret(access.AdminKind)
	err = p.Audited(ctx, by, access.Event{Action: "admin-key.rotate", Object: keyFile}, func(context.Context) error {
		err := placeKey(p.cfg.KeyDir, secret, os.Rename)
		if held, rerr := readOwnKey(p.cfg.KeyDir); rerr == nil {
			hash := access.HashOf(held)
			p.adminKey.Store(&hash)
		}
		return err
	})
	return KeyFile(p.cfg.KeyDir), err
}
