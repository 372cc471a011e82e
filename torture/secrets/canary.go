package secrets

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// window is the length, in characters, of the parts of a canary, or of an encoded form of it, that
// are searched for. A text that contains any such part contains the canary.
const window = 12

// canaries are texts that must not appear in the output of the service. Each text is searched for
// in these forms: as it is, in base64, in hexadecimal, and with every character percent-encoded.
type canaries struct {
	windows map[[window]byte]form
	begins  [1 << 16]bool // the first two bytes of each window, for a quick check
}

// form describes a find: the canary, and the form in which it was found.
type form struct{ what, as string }

func newCanaries() *canaries { return &canaries{windows: make(map[[window]byte]form)} }

// add adds a text. The first skip characters of the text are left out of its encoded forms. They
// are the prefix that marks the kind of a secret, and are not secret.
func (c *canaries) add(what, text string, skip int) {
	c.put(what, "as it is", text)
	rest := text[skip:]
	for _, format := range []string{"% x", "% X"} {
		spaced := fmt.Sprintf(format, rest)
		c.put(what, "in hexadecimal", strings.ReplaceAll(spaced, " ", ""))
		c.put(what, "percent-encoded", "%"+strings.ReplaceAll(spaced, " ", "%"))
	}
	c.base64(what, "in base64", rest)
}

// addHash adds the hash of a text, for secrets whose hashes must not appear either.
func (c *canaries) addHash(what, text string) {
	sum := sha256.Sum256([]byte(text))
	c.put(what, "as its SHA-256", string(sum[:]))
	c.put(what, "as its SHA-256", hex.EncodeToString(sum[:]))
	c.base64(what, "as its SHA-256", string(sum[:]))
}

// base64 adds the three base64 forms of a text, for its offset in the data modulo three.
func (c *canaries) base64(what, as, text string) {
	for shift := range 3 {
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			whole := enc.EncodeToString(append(make([]byte, shift), text...))
			// The first and last characters also depend on the adjacent bytes.
			c.put(what, as, whole[4:len(whole)-4])
		}
	}
}

// put adds every window of a text, which is every part that is window characters long.
func (c *canaries) put(what, as, text string) {
	for i := 0; i+window <= len(text); i++ {
		var w [window]byte
		copy(w[:], text[i:])
		if _, ok := c.windows[w]; !ok {
			c.windows[w] = form{what, as}
		}
		c.begins[uint16(w[0])<<8|uint16(w[1])] = true
	}
}

// find returns each canary (see canaries) and form that a text contains, once.
func (c *canaries) find(text []byte) (found []form) {
	seen := make(map[form]bool)
	for i := 0; i+window <= len(text); i++ {
		if !c.begins[uint16(text[i])<<8|uint16(text[i+1])] {
			continue
		}
		if f, ok := c.windows[[window]byte(text[i:i+window])]; ok && !seen[f] {
			seen[f] = true
			found = append(found, f)
		}
	}
	return found
}

// searchTree searches all files of a directory except leftOut, and returns their size.
func (c *canaries) searchTree(dir string, leftOut []string, tell func(file string, f form)) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(name string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, name)
		if slices.Contains(leftOut, rel) {
			return nil
		}
		for _, f := range c.find([]byte(rel)) {
			tell("the name of a file", f)
		}
		text, err := os.ReadFile(name)
		for _, f := range c.find(text) {
			tell(filepath.Base(name), f)
		}
		bytes += int64(len(text))
		return err
	})
	return bytes, err
}
