package archtest

import (
	"go/scanner"
	"go/token"
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
	for _, name := range trackedFiles(t, "*.go", "*.md", "*.tmpl") {
		if bannedHere[name] {
			continue
		}
		isGo, split := strings.HasSuffix(name, ".go"), paragraphs
		if isGo {
			split = goTexts
		}
		for _, text := range split(read(t, name)) {
			checked++
			if found := banned.FindString(partOf.ReplaceAllString(text, "")); found != "" {
				t.Errorf("%s: %q is banned: %.120q", name, found, text)
			}
			if isGo && headless.MatchString(text) {
				t.Errorf("%s: a sentence has no noun for a subject: %.120q", name, text)
			}
		}
	}
	if checked < 10_000 {
		t.Errorf("only %d texts were checked", checked)
	}
}

// goTexts returns the comments of a Go file, adjacent lines joined, and its strings.
func goTexts(src string) (texts []string) {
	var s scanner.Scanner
	f := token.NewFileSet().AddFile("", -1, len(src))
	s.Init(f, []byte(src), nil, scanner.ScanComments)
	last := -2 // the line of the comment before
	for {
		pos, kind, text := s.Scan()
		switch kind {
		case token.EOF:
			return texts
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
func paragraphs(text string) []string {
	return strings.Split(quoted.ReplaceAllString(fenced.ReplaceAllString(text, ""), ""), "\n\n")
}
