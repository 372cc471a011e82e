package console

import (
	"net/http"
	"strconv"

	"carstate/internal/access"
)

type auditView struct {
	Events []access.Event
	Older  uint64 // leads to the next page; 0: there is none
	Later  bool   // this is not the first page
}

// eventsListed is how many events a page of the audit shows.
const eventsListed = 50

func (c *Console) auditPage(w http.ResponseWriter, r *http.Request, s *session) {
	before, err := strconv.ParseUint(r.URL.Query().Get("before"), 10, 64)
	if err != nil {
		before = 0
	}
	events, older, err := c.Ops.Audit(r.Context(), before, eventsListed)
	if err != nil {
		refusal := c.Ops.Explain("audit.list", err)
		c.fail(w, s, refusal.Status, "Audit", refusal.Error())
		return
	}
	c.showTo(w, s, http.StatusOK, "audit", page{Title: "Audit", Section: "audit", Data: auditView{events, older, before != 0}})
}
