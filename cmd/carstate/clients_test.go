package main_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"example.org/carstate/internal/nodeprocess"
)

func TestClientsOfOtherLanguages(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir())
	url := p.URL(nodeprocess.Query)
	token := strings.TrimSpace(p.carstate(t, "token", "issue", "--developer", "Ada", "--sandbox"))
	for name, commands := range map[string][][]string{
		"python": {{"python3", "-W", "error", "test_carstate.py"}},
		"typescript": {
			{"../../.cache/npm/node_modules/.bin/tsc", "-p", "tsconfig.test.json", "--outDir", "OUT"},
			{"cp", "package.json", "OUT"},
			{"node", "--test", "OUT/carstate.test.js"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			hostile := httptest.NewServer(&hostile{token: token})
			defer hostile.Close()
			out := t.TempDir()
			for _, args := range commands {
				for i := range args {
					args[i] = strings.Replace(args[i], "OUT", out, 1)
				}
				c := exec.CommandContext(t.Context(), args[0], args[1:]...)
				c.Dir = filepath.Join("../../clients", name)
				c.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1",
					"CARSTATE_QUERY_URL="+url, "CARSTATE_TOKEN="+token, "CARSTATE_HOSTILE="+hostile.URL)
				if text, err := c.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v (make setup installs it)\n%s", args[0], err, text)
				}
			}
		})
	}
}

// hostile responds as no real service does; the first part of the path says how.
type hostile struct {
	token string
	mu    sync.Mutex
	asked map[string]int
}

func (h *hostile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind := strings.Split(r.URL.Path, "/")[1]
	h.mu.Lock()
	if h.asked == nil {
		h.asked = make(map[string]int)
	}
	h.asked[kind]++
	times := h.asked[kind]
	h.mu.Unlock()
	answer := func(status, value string) {
		fmt.Fprintf(w, `{"code":200,"msg":"success","data":{"vid":"A","status":%s,"vehicle_runing_state":"%s"}}`, status,
			value)
	}
	switch kind {
	case "redirect":
		http.Redirect(w, r, "/third", http.StatusFound)
	case "endless":
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 4096)); err != nil {
				return
			}
		}
	case "repeats":
		w.Header().Set("X-Request-Id", h.token)
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"code":400,"msg":"invalid_request: no %s","data":null}`, h.token)
	case "third":
		if times < 3 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		answer("1", "1")
	case "dropped":
		if times < 2 {
			panic(http.ErrAbortHandler)
		}
		answer("1", "1")
	case "port":
		answer("1", r.RemoteAddr[strings.LastIndex(r.RemoteAddr, ":")+1:])
	case "once": // in each connection
		h.mu.Lock()
		h.asked[r.RemoteAddr]++
		again := h.asked[r.RemoteAddr] > 1
		h.mu.Unlock()
		if again {
			panic(http.ErrAbortHandler)
		}
		answer("1", "1")
	case "strings":
		answer(`"1"`, "7")
	case "other":
		fmt.Fprint(w, `{"code":200,"msg":"success","data":{"vid":"B","status":1,"vehicle_runing_state":"1"}}`)
	case "list":
		fmt.Fprint(w, `[1]`)
	default:
		fmt.Fprint(w, `<html>`)
	}
}
