package archtest

import (
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// banned are words and openings of sentences that the style sheet of CONTRIBUTING.md
	// replaces by standard terms.
	banned = regexp.MustCompile(`(?i)\b(anew|whoever|whom|goes by|go by|at hand|under way|is told|are told|counts for|` +
		`of which|so many|comes? to nothing|befell|seldom|hardly|likewise|deeds?)\b`)
	// headless matches a sentence whose subject is a bare relative pronoun.
	headless = regexp.MustCompile(`(?:^|[.:] )(?:Who|What|Whoever|Whom|Whose) [^?]*?\.(?: |$)`)
	partOf   = regexp.MustCompile(`(?i)\b(?:none|some|most|both|all|each) of which\b`) // standard English
	fenced   = regexp.MustCompile("(?ms)^```.*?^```$")
	quoted   = regexp.MustCompile("`[^`\n]*`")
)

// bannedHere are files that quote the banned words.
var bannedHere = map[string]bool{"CONTRIBUTING.md": true, "internal/archtest/words_test.go": true}

// TestWords checks that no comment or string of a Go file and no document contains a banned word.
func TestWords(t *testing.T) {
	checked := 0
	err := filepath.WalkDir(root, func(file string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, file)
		if entry.IsDir() && (entry.Name() == "node_modules" || strings.HasPrefix(entry.Name(), ".") && entry.Name() != "..") {
			return filepath.SkipDir
		}
		if bannedHere[name] || entry.IsDir() {
			return nil
		}
		var texts []string
		switch filepath.Ext(file) {
		case ".go":
			texts, err = goTexts(file)
		case ".md", ".tmpl":
			texts, err = paragraphs(file)
		default:
			return nil
		}
		for _, text := range texts {
			checked++
			if found := banned.FindString(partOf.ReplaceAllString(text, "")); found != "" {
				t.Errorf("%s: %q is banned: %.120q", name, found, text)
			}
			if strings.HasSuffix(file, ".go") && headless.MatchString(text) {
				t.Errorf("%s: a sentence has no noun for a subject: %.120q", name, text)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked < 10_000 {
		t.Errorf("only %d texts were checked", checked)
	}
}

// TestWords_Findings checks that the patterns match the sentences that they must find, and no
// others.
func TestWords_Findings(t *testing.T) {
	for text, bad := range map[string]bool{
		"Who has gone is not handed out.":                 true,
		"refusal is nil. What is late begins nothing.":    true,
		"The table is filled anew.":                       true,
		"a client that has gone is not handed out":        false,
		"What does the caller get? The state.":            false,
		"Reader of what is stored. It returns the state.": false,
	} {
		if got := banned.MatchString(text) || headless.MatchString(text); got != bad {
			t.Errorf("%q: found %t, want %t", text, got, bad)
		}
	}
}

// goTexts returns the comments of a Go file, adjacent lines joined, and its strings.
func goTexts(file string) (texts []string, err error) {
	src, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var s scanner.Scanner
	files := token.NewFileSet()
	f := files.AddFile(file, -1, len(src))
	s.Init(f, src, nil, scanner.ScanComments)
	last := -2 // the line of the comment before
	for {
		pos, kind, text := s.Scan()
		switch kind {
		case token.EOF:
			return texts, nil
		case token.STRING:
			texts = append(texts, strings.Trim(text, "\"`"))
		case token.COMMENT:
			line, body := f.Line(pos), strings.TrimSpace(strings.TrimPrefix(text, "//"))
			if line == last+1 && len(texts) > 0 {
				texts[len(texts)-1] += " " + body
			} else {
				texts = append(texts, body)
			}
			last = line
		}
	}
}

// paragraphs returns the paragraphs of a document, without code.
func paragraphs(file string) ([]string, error) {
	b, err := os.ReadFile(file)
	return strings.Split(quoted.ReplaceAllString(fenced.ReplaceAllString(string(b), ""), ""), "\n\n"), err
}
