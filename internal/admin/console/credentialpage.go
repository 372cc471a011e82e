package console

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"carstate/internal/access"
	"carstate/internal/inwords"
)

// listing shows the list that a form belongs to, with the form as it was refused.
type listing func(w http.ResponseWriter, r *http.Request, s *session, status int, problem string, form url.Values)

// rotate takes the form that gives a credential a new secret.
func (c *Console) rotate(kind access.Kind, title string, show listing) func(http.ResponseWriter, *http.Request, *session) {
	return func(w http.ResponseWriter, r *http.Request, s *session) {
		if !c.once(w, r, s, smallForm, kind) {
			return
		}
		var overlap time.Duration
		old := "The old one has ended, and so have the sessions that it opened."
		if kind.Policy().Overlap {
			var err error
			if overlap, err = overlapOf(r.PostForm); err != nil {
				show(w, r, s, http.StatusBadRequest, err.Error(), nil)
				return
			}
			old = oldInWords(overlap)
		}
		rotated, secret, err := c.Ops.Rotate(r.Context(), s.who, kind, r.PathValue("name"), overlap)
		if err != nil {
			show(w, r, s, statusOf(err), err.Error(), nil)
			return
		}
		c.showSecret(w, s, title, rotated, secretView{Secret: secret, Old: old})
	}
}

// end takes the form that revokes or removes a credential; notice names the holder.
func (c *Console) end(kind access.Kind, notice string, show listing) func(http.ResponseWriter, *http.Request, *session) {
	return func(w http.ResponseWriter, r *http.Request, s *session) {
		ended, err := c.Ops.End(r.Context(), s.who, kind, r.PathValue("name"))
		if err != nil {
			show(w, r, s, statusOf(err), err.Error(), nil)
			return
		}
		c.done(w, r, s, "/"+listOf(kind), fmt.Sprintf(notice, holderOf(ended)))
	}
}

// listOf names the list that credentials of a kind belong to, as in a path.
func listOf(kind access.Kind) string { return kind.Policy().Noun + "s" }

// holderOf is the developer of a token, and the name of any other credential.
func holderOf(c access.Credential) string { return cmp.Or(c.Developer, c.Name) }

// secretView shows a secret, this once.
type secretView struct {
	What, Name string // "token" of whom, "source" called what
	ID         string // of a token
	Secret     string
	Old        string // what became of the secret that was replaced; "": there was none
	Back       string // the list that it belongs to
	Query      string // a line to paste; "": none
	Telemetry  bool   // it opens the ingest listener
	Login      bool   // it opens the console
}

// showSecret shows the new secret of a credential.
func (c *Console) showSecret(w http.ResponseWriter, s *session, title string, of access.Credential, v secretView) {
	list := listOf(of.Kind)
	v.What, v.Name, v.Back = of.Kind.Policy().Noun, holderOf(of), "/"+list
	v.Telemetry, v.Login = of.Kind == access.SourceKind, of.Kind == access.OperatorKind
	if of.Developer != "" {
		v.ID = of.Name
	}
	c.showTo(w, s, http.StatusCreated, "secret", page{Title: title, Section: list, Data: v})
}

// once reads a form that must not be sent twice, and answers if there is
// something wrong with it.
func (c *Console) once(w http.ResponseWriter, r *http.Request, s *session, limit int64, kind access.Kind) bool {
	back := listOf(kind)
	switch {
	case !parseForm(w, r, limit):
		c.fail(w, s, http.StatusRequestEntityTooLarge, "Not done", "the form is too long: a list of more than some 40,000 vehicles goes by the command line, --vehicles @FILE")
		return false
	case !c.sessions.first(r.PostForm.Get("mark")):
		c.fail(w, s, http.StatusConflict, "Already done", "this form was sent before, and nothing was done again: go to "+strings.ToUpper(back[:1])+back[1:])
		return false
	}
	return true
}

// overlapOf reads how long a replaced secret is to count, in hours.
func overlapOf(form url.Values) (time.Duration, error) {
	hours, err := strconv.Atoi(form.Get("overlap"))
	d := time.Duration(hours) * time.Hour
	if err != nil || hours > 24*365 || access.CheckOverlap(d) != nil {
		return 0, fmt.Errorf("choose how long the old secret counts")
	}
	return d, nil
}

func oldInWords(overlap time.Duration) string {
	if overlap == 0 {
		return "The old one has ended."
	}
	return "The old one counts for " + inwords.Duration(overlap) + " more."
}
