package console

import (
	"cmp"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

func (c *Console) showLogin(w http.ResponseWriter, r *http.Request, status int, problem string) {
	next := localPath(r.PostForm.Get("next")) // not empty after a login with a wrong key
	path := strings.TrimPrefix(r.URL.Path, rootOf(r))
	if r.Method == http.MethodGet && path != "/login" {
		next = localPath(path) // without the query, which may contain a secret by mistake
	}
	inside := &http.Request{Method: r.Method, URL: &url.URL{Path: "/s/-" + strings.TrimSuffix(path, "/")}}
	if _, pattern := c.mux.Handler(inside); status == http.StatusUnauthorized && strings.HasPrefix(pattern, " ") {
		status = http.StatusNotFound // only patterns for nothing have no method
	}
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="carstate-admin"`)
	}
	c.show(w, nil, status, "login", page{Title: "Log in", Problem: problem, Data: next})
}

func (c *Console) login(w http.ResponseWriter, r *http.Request) {
	if !parseForm(w, r, smallForm) {
		c.showLogin(w, r, http.StatusBadRequest, "the form could not be read: try again")
		return
	}
	who, hash, ok := c.Ops.Identify(strings.TrimSpace(r.PostForm.Get("key")))
	if !ok {
		c.wrong.Inc()
		c.wrongLog.Log(c.Log, "a wrong key was refused at the console", "remote", r.RemoteAddr)
		c.showLogin(w, r, http.StatusForbidden, "this is not a key of this service: use the admin key in "+
			"admin.key of the data directory, or your operator's key")
		return
	}
	s := c.sessions.begin(w, r, who, hash)
	c.Log.Info("logged in at the console", "actor", who.Name, "admin", who.Admin, "remote", r.RemoteAddr)
	http.Redirect(w, r, s.at(localPath(r.PostForm.Get("next"))), http.StatusSeeOther)
}

func (c *Console) logout(w http.ResponseWriter, r *http.Request, s *session) {
	c.sessions.end(w, s)
	http.Redirect(w, r, s.at("/login"), http.StatusSeeOther)
}

// localPath returns "/" for what could redirect the login to another server.
func localPath(next string) string {
	return cmp.Or(localPaths.FindString(next), "/")
}

var localPaths = regexp.MustCompile(`^/[0-9A-Za-z][0-9A-Za-z/]*$`)
