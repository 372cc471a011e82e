package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/vehicle"
)

type auditView struct {
	ops.EventList
	ops.AuditQuery // what could be parsed of Form
	Form           url.Values
}

const eventsListed = 50

// auditFields become part of the URL. vid is not one of them, because proxies and browsers store
// URLs: vehicle has the beginning of its hash.
var auditFields = []string{"actor", "action", "since", "until", "vehicle"}

func (v auditView) Chosen() bool { return v.Address("", "") != "/audit" }

func (v auditView) Address(name string, value any) string {
	asked := url.Values{}
	for _, field := range auditFields {
		asked.Set(field, v.Form.Get(field))
	}
	asked.Set(name, fmt.Sprint(value))
	return address("/audit", asked)
}

func (c *Console) auditPage(w http.ResponseWriter, r *http.Request, s *session) {
	form := r.URL.Query()
	if _, err := strconv.ParseUint(form.Get("before"), 10, 64); err != nil {
		form.Del("before")
	}
	format := form.Get("format")
	form.Del("format")
	q, err := c.Ops.AskedAudit(form)
	v := auditView{AuditQuery: q, Form: form}
	if format != "" && err == nil {
		if err := c.Ops.ServeAudit(w, r, q, format); err != nil {
			c.fail(w, s, "Audit", c.Ops.Explain("audit.list", err))
		}
		return
	}
	if err == nil {
		q.Limit = eventsListed
		if v.EventList, err = c.Ops.Audit(r.Context(), q); err != nil {
			c.fail(w, s, "Audit", c.Ops.Explain("audit.list", err))
			return
		}
	}
	c.showForm(w, s, err, "audit", page{Title: "Audit", Section: "audit", Data: v})
}

func (c *Console) findEvents(w http.ResponseWriter, r *http.Request, s *session) {
	form := url.Values{}
	for _, name := range auditFields {
		form.Set(name, strings.TrimSpace(r.PostForm.Get(name)))
	}
	if vid := strings.TrimSpace(r.PostForm.Get("vid")); vid != "" {
		id, err := vehicle.ParseID(vid)
		if err != nil {
			c.fail(w, s, "Audit", err)
			return
		}
		form.Set("vehicle", c.Ops.VehicleMark(id))
	}
	http.Redirect(w, r, s.at(auditView{Form: form}.Address("", "")), http.StatusSeeOther)
}
