package console

import (
	"net/http"
	"net/url"
	"strings"

	"carstate/internal/access"
	"carstate/internal/ops"
)

type operatorsView struct {
	Rows []ops.OperatorSummary
	Form url.Values
}

func (c *Console) operatorsPage(w http.ResponseWriter, r *http.Request, s *session) {
	c.showOperators(w, r, s, http.StatusOK, "", nil)
}

func (c *Console) showOperators(w http.ResponseWriter, _ *http.Request, s *session, status int, problem string, form url.Values) {
	v := operatorsView{c.Ops.Operators(), refill(form)}
	c.showTo(w, s, status, "operators", page{Title: "Operators", Section: "operators", Problem: problem, Data: v})
}

func (c *Console) addOperator(w http.ResponseWriter, r *http.Request, s *session) {
	if !c.once(w, r, s, smallForm, access.OperatorKind) {
		return
	}
	o, key, err := c.Ops.AddOperator(r.Context(), s.who, strings.TrimSpace(r.PostForm.Get("name")))
	if err != nil {
		c.showOperators(w, r, s, statusOf(err), err.Error(), r.PostForm)
		return
	}
	c.showSecret(w, s, "Operator added", o, secretView{Secret: key})
}

// rotateAdminKey ends this very session with the key that opened it.
func (c *Console) rotateAdminKey(w http.ResponseWriter, r *http.Request, s *session) {
	if _, err := c.Ops.RotateAdminKey(r.Context(), s.who); err != nil {
		c.showOperators(w, r, s, statusOf(err), err.Error(), nil)
		return
	}
	c.sessions.end(w, s)
	c.show(w, http.StatusOK, "login", page{Title: "Log in", Notice: "The admin key is replaced. The new one is in admin.key of the data directory: log in with that.", Data: struct{ Next string }{"/"}})
}
