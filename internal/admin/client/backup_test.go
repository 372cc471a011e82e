package client_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"example.org/carstate/internal/admin/client"
	"example.org/carstate/internal/admin/wire"
)

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestBackup_WhoFailed(t *testing.T) {
	cut := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", wire.BackupType)
		fmt.Fprint(w, "half")
		if cut {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}))
	defer server.Close()
	c := &client.Client{URL: server.URL, Key: "key"}
	if err := c.Backup(t.Context(), fullDisk{}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a full disk: got %v, want %v", err, syscall.ENOSPC)
	}
	cut = true
	if err := c.Backup(t.Context(), new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), "incomplete") {
		t.Errorf("a cut response: got %v, want that the backup is incomplete", err)
	}
}
