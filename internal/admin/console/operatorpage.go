package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"carstate/internal/access"
	"carstate/internal/ops"
)

// operatorChoices is the form that sorts and filters operators.
var operatorChoices = chooser{
	Path: "/operators", What: "operators", Names: "Name",
	Sorts: []option{{"", "name"}, {"newest", "newest first"}, {"key", "oldest key first"}},
}

func (c *Console) showOperators(w http.ResponseWriter, r *http.Request, s *session, err error, form url.Values) {
	all := c.Ops.Operators()
	v := credentials(c, r, s, form, operatorChoices, all, choice.operators,
		func(o ops.OperatorSummary) (any, error) { return o, nil })
	c.showForm(w, s, err, "operators", page{Title: "Operators", Section: "operators", Data: v})
}

// operators returns the operators that match the filter, in the chosen order; without a chosen
// order, they are sorted by name. The parameter all must be sorted by name; operators changes it.
func (c choice) operators(all []ops.OperatorSummary) []ops.OperatorSummary {
	all = slices.DeleteFunc(all, func(o ops.OperatorSummary) bool { return !c.finds(o.Name) })
	keySince := func(o ops.OperatorSummary) time.Time { return *cmp.Or(o.RotatedAt, &o.CreatedAt) }
	slices.SortStableFunc(all, func(a, b ops.OperatorSummary) int {
		switch c.Sort {
		case "newest":
			return b.CreatedAt.Compare(a.CreatedAt)
		case "key":
			return keySince(a).Compare(keySince(b))
		}
		return 0
	})
	return all
}

// operatorRequest parses the form of a new operator. The error is always nil, because package ops
// checks the name.
func operatorRequest(form url.Values) (access.Request, error) {
	return access.Request{Kind: access.OperatorKind, Name: strings.TrimSpace(form.Get("name"))}, nil
}

// rotateAdminKey replaces the admin key, after the caller has confirmed it. Only a caller who has
// logged in with the admin key may do this; for any other caller, the page says so. The operation
// also ends the caller's session, because the key of the session is no longer valid.
func (c *Console) rotateAdminKey(w http.ResponseWriter, r *http.Request, s *session) {
	if s.who.Admin && !c.sure(w, s, r, replaceKey) {
		return
	}
	if _, err := c.Ops.RotateAdminKey(r.Context(), s.who); err != nil {
		c.showOperators(w, r, s, err, nil)
		return
	}
	c.sessions.end(w, s)
	c.show(w, http.StatusOK, "login",
		page{Title: "Log in",
			Notice: "The admin key is replaced. The new one is in admin.key of the data directory: log in with that.",
			Data:   struct{ Next string }{"/"}})
}
