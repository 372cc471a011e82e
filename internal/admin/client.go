package admin

import (
	"bytes"
	"context"
	"encoding/json/v2"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"carstate/internal/access"
	"carstate/internal/admin/roadmap"
	"carstate/internal/road"
	"carstate/internal/vehicle"
)

// Client calls the admin API. Its errors are one line each that says what to do;
// they wrap [access.ErrNotFound] and [access.ErrExists] where those apply.
type Client struct {
	URL  string       // such as http://127.0.0.1:8082
	Key  string       // the admin key; see [LoadKey]
	HTTP *http.Client // nil: one that uses no proxy and follows no redirect
}

// clientTimeout leaves time for a list of a million vehicles.
const clientTimeout = 2 * time.Minute

// directly keeps the key from proxies that the environment names, and from where
// a redirect leads.
var directly = &http.Client{
	Timeout:       clientTimeout,
	Transport:     &http.Transport{IdleConnTimeout: idleTimeout, ForceAttemptHTTP2: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// IssueToken issues a token. The answer holds its secret, which is shown never
// again.
func (c *Client) IssueToken(ctx context.Context, r access.TokenRequest) (IssuedToken, error) {
	request := tokenRequest{
		Developer:  r.Developer,
		Operations: r.Operations.Names(),
		Vehicles:   &VehicleList{r.Vehicles},
		ExpiresAt:  expiry{true, r.Expires},
		Rate:       r.Rate.String(),
		Sandbox:    r.Sandbox,
	}
	if r.Sandbox {
		request.Vehicles = nil
	}
	return send[IssuedToken](ctx, c, http.MethodPost, "/v1/tokens", request)
}

// Tokens lists all tokens, oldest first.
func (c *Client) Tokens(ctx context.Context) ([]TokenSummary, error) {
	list, err := send[tokenList](ctx, c, http.MethodGet, "/v1/tokens", nil)
	return list.Tokens, err
}

// Token shows one token.
func (c *Client) Token(ctx context.Context, id string) (TokenRecord, error) {
	return send[TokenRecord](ctx, c, http.MethodGet, "/v1/tokens/"+url.PathEscape(id), nil)
}

// RevokeToken revokes a token. Revoking it again changes nothing.
func (c *Client) RevokeToken(ctx context.Context, id string) (TokenSummary, error) {
	return send[TokenSummary](ctx, c, http.MethodPost, "/v1/tokens/"+url.PathEscape(id)+"/revoke", nil)
}

// GrantToken adds vehicles to a token and takes others away.
func (c *Client) GrantToken(ctx context.Context, id string, add, remove []vehicle.ID) (TokenSummary, error) {
	return send[TokenSummary](ctx, c, http.MethodPost, "/v1/tokens/"+url.PathEscape(id)+"/grant", grantRequest{add, remove})
}

// RotateToken gives a token a new secret; the old one counts for overlap more, in
// whole seconds. The answer holds the new one, which is shown never again.
func (c *Client) RotateToken(ctx context.Context, id string, overlap time.Duration) (RotatedToken, error) {
	return send[RotatedToken](ctx, c, http.MethodPost, "/v1/tokens/"+url.PathEscape(id)+"/rotate", rotateBody(overlap))
}

// AddSource adds a source; a zero expires is never. The answer holds its key,
// which is shown never again.
func (c *Client) AddSource(ctx context.Context, name string, v access.Vehicles, expires time.Time) (AddedSource, error) {
	return send[AddedSource](ctx, c, http.MethodPost, "/v1/sources", sourceRequest{name, &VehicleList{v}, expiry{true, expires}})
}

// Sources lists the sources that were not removed, by name.
func (c *Client) Sources(ctx context.Context) ([]SourceSummary, error) {
	list, err := send[sourceList](ctx, c, http.MethodGet, "/v1/sources", nil)
	return list.Sources, err
}

// Source shows one source; a removed one too.
func (c *Client) Source(ctx context.Context, name string) (SourceRecord, error) {
	return send[SourceRecord](ctx, c, http.MethodGet, "/v1/sources/"+url.PathEscape(name), nil)
}

// RemoveSource removes a source. Removing it again changes nothing.
func (c *Client) RemoveSource(ctx context.Context, name string) (SourceSummary, error) {
	return send[SourceSummary](ctx, c, http.MethodDelete, "/v1/sources/"+url.PathEscape(name), nil)
}

// Vehicle tells what is known of a vehicle and why it is judged as it is.
func (c *Client) Vehicle(ctx context.Context, id vehicle.ID) (VehicleRecord, error) {
	return send[VehicleRecord](ctx, c, http.MethodGet, "/v1/vehicles/"+url.PathEscape(string(id)), nil)
}

// Roads tells how traffic moves on the stretches of road within a box, at most limit of
// them (1 to [roadmap.MaxStretches]), the worst first.
func (c *Client) Roads(ctx context.Context, b road.Box, limit int) (roadmap.Collection, error) {
	path := fmt.Sprintf("/v1/roads?bbox=%g,%g,%g,%g&limit=%d", b.West, b.South, b.East, b.North, limit)
	return send[roadmap.Collection](ctx, c, http.MethodGet, path, nil)
}

// Forget erases a vehicle everywhere.
func (c *Client) Forget(ctx context.Context, id vehicle.ID) (ForgetReceipt, error) {
	return send[ForgetReceipt](ctx, c, http.MethodPost, "/v1/vehicles/"+url.PathEscape(string(id))+"/forget", nil)
}

// Allow lets a forgotten vehicle report again. It starts without a past.
func (c *Client) Allow(ctx context.Context, id vehicle.ID) (ForgetReceipt, error) {
	return send[ForgetReceipt](ctx, c, http.MethodPost, "/v1/vehicles/"+url.PathEscape(string(id))+"/allow", nil)
}

// RotateSource is RotateToken for the key of a source.
func (c *Client) RotateSource(ctx context.Context, name string, overlap time.Duration) (RotatedSource, error) {
	return send[RotatedSource](ctx, c, http.MethodPost, "/v1/sources/"+url.PathEscape(name)+"/rotate", rotateBody(overlap))
}

// AddOperator adds an operator. The answer holds the key, which is shown never
// again.
func (c *Client) AddOperator(ctx context.Context, name string) (OperatorKey, error) {
	return send[OperatorKey](ctx, c, http.MethodPost, "/v1/operators", operatorRequest{name})
}

// Operators lists the operators that were not removed, by name.
func (c *Client) Operators(ctx context.Context) ([]OperatorSummary, error) {
	list, err := send[operatorList](ctx, c, http.MethodGet, "/v1/operators", nil)
	return list.Operators, err
}

// RotateOperator gives an operator a new key; the old one ends at once.
func (c *Client) RotateOperator(ctx context.Context, name string) (OperatorKey, error) {
	return send[OperatorKey](ctx, c, http.MethodPost, "/v1/operators/"+url.PathEscape(name)+"/rotate", nil)
}

// RemoveOperator removes an operator. Removing one again changes nothing.
func (c *Client) RemoveOperator(ctx context.Context, name string) (OperatorSummary, error) {
	return send[OperatorSummary](ctx, c, http.MethodDelete, "/v1/operators/"+url.PathEscape(name), nil)
}

// RotateAdminKey replaces the admin key, which the client holds no longer then:
// see [LoadKey].
func (c *Client) RotateAdminKey(ctx context.Context) (RotatedAdminKey, error) {
	return send[RotatedAdminKey](ctx, c, http.MethodPost, "/v1/admin-key/rotate", nil)
}

func rotateBody(overlap time.Duration) rotateRequest {
	seconds := int64(overlap / time.Second)
	return rotateRequest{&seconds}
}

// Audit returns the latest events, newest first, at most limit of them (1 to
// 1,000).
func (c *Client) Audit(ctx context.Context, limit int) ([]access.Event, error) {
	list, err := send[eventList](ctx, c, http.MethodGet, "/v1/audit?limit="+strconv.Itoa(limit), nil)
	return list.Events, err
}

// send makes one call. A nil body sends none.
func send[Out any](ctx context.Context, c *Client, method, path string, body any) (out Out, err error) {
	where := shown(c.URL)
	if c.Key == "" {
		return out, errorf("there is no admin key to show to %s: name the service's data directory (--data-dir)", where)
	}
	var payload io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return out, err
		}
		payload = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.URL, "/")+path, payload)
	if err != nil || req.URL.Host == "" {
		return out, errorf("%s is no URL of an admin listener: it looks like http://127.0.0.1:8082 (--admin-addr)", where)
	}
	req.Header.Set("Authorization", "Bearer "+c.Key)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	via := c.HTTP
	if via == nil {
		via = directly
	}
	resp, err := via.Do(req)
	if err != nil {
		return out, unreachable(where, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return out, refused(where, resp)
	}
	if err := json.UnmarshalRead(resp.Body, &out); err != nil {
		return out, errorf("what answers at %s is not carstate's admin listener, or broke off (--admin-addr)", where)
	}
	return out, nil
}
