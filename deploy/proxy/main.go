// Command proxy adds a version of modules to a directory that GOPROXY=file://DIRECTORY names. A
// module's zip has the bytes and the checksum that go makes of the same files in a repository.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

func main() {
	if len(os.Args) < 5 {
		fmt.Fprintln(os.Stderr, "usage: proxy DIRECTORY VERSION TIME MODULE…, such as proxy dist/go v0.2.0 2026-11-28T12:00:00Z . client")
		os.Exit(2)
	}
	for _, dir := range os.Args[4:] {
		if err := add(os.Args[1], os.Args[2], os.Args[3], dir); err != nil {
			fmt.Fprintf(os.Stderr, "proxy: the module in %s: %v\n", dir, err)
			os.Exit(1)
		}
	}
}

func add(proxy, version, at, dir string) error {
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	m := module.Version{Path: modfile.ModulePath(mod), Version: version}
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	to := filepath.Join(proxy, escaped, "@v")
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	info := fmt.Sprintf(`{"Version":%q,"Time":%q}`, version, at)
	for name, text := range map[string]string{"list": version + "\n", version + ".info": info, version + ".mod": string(mod)} {
		if err := os.WriteFile(filepath.Join(to, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	out, err := os.Create(filepath.Join(to, version+".zip"))
	if err != nil {
		return err
	}
	return errors.Join(zip.CreateFromDir(out, m, dir), out.Close())
}
