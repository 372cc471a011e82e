package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json/v2"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"example.org/carstate/internal/access"
	"example.org/carstate/internal/admin/wire"
	"example.org/carstate/internal/ops"
	"example.org/carstate/internal/vehicle"
)

// Client calls the admin API. Each error is one line that says what to do. It wraps
// [access.ErrNotFound] if the record does not exist. It is an [*Error] or, once the response
// of a backup, a restore or an export has begun, perhaps the error of ctx or of the writer. If no
// response came, the operation may have been carried out.
type Client struct {
	URL  string
	Key  string       // the admin key or an operator's
	Flag string       // of Key
	HTTP *http.Client // if nil, without proxy and redirects
}

var directly = HTTPClient(nil)

func (c *Client) IssueToken(ctx context.Context, r access.Credential) (wire.IssuedToken, error) {
	request := wire.TokenRequest{
		Developer:  r.Developer,
		Operations: r.Operations.Names(),
		Vehicles:   &ops.VehicleList{Vehicles: r.Vehicles},
		ExpiresAt:  wire.Expiry(r.Expires),
		Rate:       r.Rate.String(),
		Sandbox:    r.Kind == access.SandboxKind,
	}
	if request.Sandbox {
		request.Vehicles = nil
	}
	return send[wire.IssuedToken](ctx, c, http.MethodPost, "/v1/tokens", request)
}

func (c *Client) Tokens(ctx context.Context) ([]ops.TokenSummary, error) {
	list, err := send[wire.TokenList](ctx, c, http.MethodGet, "/v1/tokens", nil)
	return list.Tokens, err
}

func (c *Client) Token(ctx context.Context, id string) (ops.TokenRecord, error) {
	return send[ops.TokenRecord](ctx, c, http.MethodGet, "/v1/tokens/"+url.PathEscape(id), nil)
}

func (c *Client) RevokeToken(ctx context.Context, id string) (ops.TokenSummary, error) {
	return send[ops.TokenSummary](ctx, c, http.MethodPost, "/v1/tokens/"+url.PathEscape(id)+"/revoke", nil)
}

func (c *Client) GrantToken(ctx context.Context, id string, add, remove []vehicle.ID) (ops.TokenSummary, error) {
	return send[ops.TokenSummary](ctx, c, http.MethodPost, "/v1/tokens/"+url.PathEscape(id)+"/grant",
		wire.GrantRequest{Add: add, Remove: remove})
}

// ChangeToken ignores the fields of to that are nil or of sources.
func (c *Client) ChangeToken(ctx context.Context, id string, to access.Change) (ops.TokenSummary, error) {
	return send[ops.TokenSummary](ctx, c, http.MethodPatch, "/v1/tokens/"+url.PathEscape(id), changeBody(to).TokenChange)
}

func (c *Client) ChangeSource(ctx context.Context, name string, to access.Change) (ops.SourceSummary, error) {
	return send[ops.SourceSummary](ctx, c, http.MethodPatch, "/v1/sources/"+url.PathEscape(name), changeBody(to))
}

func changeBody(to access.Change) wire.SourceChange {
	body := wire.SourceChange{Strict: to.Strict, TrustedCrowd: to.TrustedCrowd}
	if to.Vehicles != nil {
		body.Vehicles = &ops.VehicleList{Vehicles: *to.Vehicles}
	}
	if to.Expires != nil {
		body.ExpiresAt = wire.Expiry(*to.Expires)
	}
	if to.Rate != nil {
		body.Rate = new(to.Rate.String())
	}
	if to.OnChange != nil {
		body.OnChange = new(to.OnChange.String())
	}
	if to.Format != nil {
		body.Format = new((*to.Format).String())
	}
	return body
}

// RotateToken keeps the old secret valid for overlap, in whole seconds, up to [access.MaxOverlap].
func (c *Client) RotateToken(ctx context.Context, id string, overlap time.Duration) (wire.RotatedToken, error) {
	return rotate[wire.RotatedToken](ctx, c, "/v1/tokens/"+url.PathEscape(id), overlap)
}

func (c *Client) AddSource(ctx context.Context, r access.Credential) (wire.AddedSource, error) {
	return send[wire.AddedSource](ctx, c, http.MethodPost, "/v1/sources", wire.SourceRequest{
		Name: r.Name, Vehicles: &ops.VehicleList{Vehicles: r.Vehicles},
		ExpiresAt: wire.Expiry(r.Expires), Rate: r.Rate.String(), Strict: r.Strict,
		OnChange: r.OnChange.String(), Format: r.Format.String(), TrustedCrowd: r.TrustedCrowd,
	})
}

func (c *Client) ForgetRoads(ctx context.Context, box string) (wire.ForgottenRoads, error) {
	return send[wire.ForgottenRoads](ctx, c, http.MethodPost, "/v1/roads/forget", wire.ForgetRoadsRequest{BBox: box})
}

func (c *Client) Sources(ctx context.Context) ([]ops.SourceSummary, error) {
	list, err := send[wire.SourceList](ctx, c, http.MethodGet, "/v1/sources", nil)
	return list.Sources, err
}

// Source returns a source, also a removed one whose name is not taken.
func (c *Client) Source(ctx context.Context, name string) (ops.SourceRecord, error) {
	return send[ops.SourceRecord](ctx, c, http.MethodGet, "/v1/sources/"+url.PathEscape(name), nil)
}

func (c *Client) RemoveSource(ctx context.Context, name string) (ops.SourceSummary, error) {
	return send[ops.SourceSummary](ctx, c, http.MethodDelete, "/v1/sources/"+url.PathEscape(name), nil)
}

func (c *Client) Vehicles(ctx context.Context, q ops.VehicleQuery) (ops.VehiclePage, error) {
	return send[ops.VehiclePage](ctx, c, http.MethodGet, "/v1/vehicles?"+q.Values().Encode(), nil)
}

// Export writes a complete list to w: /v1/vehicles or /v1/audit, with the filters of query, in one
// of [ops.ExportFormats]. After an error, w has a part of it.
func (c *Client) Export(ctx context.Context, w io.Writer, list string, query url.Values, format string) error {
	query.Set("format", format)
	return c.download(ctx, w, list+"?"+query.Encode(), ops.ExportFormats[format],
		"the list is incomplete: the connection was closed before its end")
}

func (c *Client) Vehicle(ctx context.Context, id vehicle.ID) (ops.VehicleRecord, error) {
	return send[ops.VehicleRecord](ctx, c, http.MethodGet, "/v1/vehicles/"+url.PathEscape(string(id)), nil)
}

func (c *Client) Status(ctx context.Context) (wire.Status, error) {
	return send[wire.Status](ctx, c, http.MethodGet, "/v1/status", nil)
}

func (c *Client) Node(ctx context.Context) (wire.NodeSettings, error) {
	return send[wire.NodeSettings](ctx, c, http.MethodGet, "/v1/node", nil)
}

func (c *Client) ChangeNode(ctx context.Context, s wire.NodeSettings) (wire.NodeSettings, error) {
	return send[wire.NodeSettings](ctx, c, http.MethodPatch, "/v1/node", s)
}

func (c *Client) Forget(ctx context.Context, id vehicle.ID) (access.ForgetReceipt, error) {
	return send[access.ForgetReceipt](ctx, c, http.MethodPost, "/v1/vehicles/"+url.PathEscape(string(id))+"/forget",
		nil)
}

func (c *Client) Allow(ctx context.Context, id vehicle.ID) (access.ForgetReceipt, error) {
	return send[access.ForgetReceipt](ctx, c, http.MethodPost, "/v1/vehicles/"+url.PathEscape(string(id))+"/allow", nil)
}

func (c *Client) Relearn(ctx context.Context, id vehicle.ID) (ops.Relearned, error) {
	return send[ops.Relearned](ctx, c, http.MethodPost, "/v1/vehicles/"+url.PathEscape(string(id))+"/relearn", nil)
}

func (c *Client) RotateSource(ctx context.Context, name string, overlap time.Duration) (wire.RotatedSource, error) {
	return rotate[wire.RotatedSource](ctx, c, "/v1/sources/"+url.PathEscape(name), overlap)
}

func (c *Client) AddOperator(ctx context.Context, name string, readOnly bool) (wire.OperatorKey, error) {
	return send[wire.OperatorKey](ctx, c, http.MethodPost, "/v1/operators",
		wire.OperatorRequest{Name: name, ReadOnly: readOnly})
}

func (c *Client) Operators(ctx context.Context) ([]ops.OperatorSummary, error) {
	list, err := send[wire.OperatorList](ctx, c, http.MethodGet, "/v1/operators", nil)
	return list.Operators, err
}

func (c *Client) RotateOperator(ctx context.Context, name string) (wire.OperatorKey, error) {
	return send[wire.OperatorKey](ctx, c, http.MethodPost, "/v1/operators/"+url.PathEscape(name)+"/rotate", nil)
}

func (c *Client) RemoveOperator(ctx context.Context, name string) (ops.OperatorSummary, error) {
	return send[ops.OperatorSummary](ctx, c, http.MethodDelete, "/v1/operators/"+url.PathEscape(name), nil)
}

// RotateAdminKey replaces the admin key. c.Key is then invalid; [ops.LoadKey] reads the new one.
func (c *Client) RotateAdminKey(ctx context.Context) (wire.RotatedAdminKey, error) {
	return send[wire.RotatedAdminKey](ctx, c, http.MethodPost, "/v1/admin-key/rotate", nil)
}

func rotate[Out any](ctx context.Context, c *Client, path string, overlap time.Duration) (Out, error) {
	return send[Out](ctx, c, http.MethodPost, path+"/rotate",
		wire.RotateRequest{OverlapSeconds: new(int64(overlap / time.Second))})
}

func (c *Client) SearchAudit(ctx context.Context, query url.Values) (ops.EventList, error) {
	return send[ops.EventList](ctx, c, http.MethodGet, "/v1/audit?"+query.Encode(), nil)
}

func send[Out any](ctx context.Context, c *Client, method, path string, body any) (out Out, err error) {
	var payload io.Reader
	var header http.Header
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return out, err
		}
		payload, header = bytes.NewReader(text), http.Header{"Content-Type": {"application/json"}}
	}
	resp, err := c.do(ctx, method, path, payload, header, false)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	if err := json.UnmarshalRead(resp.Body, &out); err != nil {
		return out, errorf("the server at %s is not carstate's admin listener, or disconnected (--admin-addr)",
			shown(c.URL))
	}
	return out, nil
}

// do returns a successful response, whose body the caller must close. If patient, only ctx limits
// the time.
func (c *Client) do(
	ctx context.Context, method, path string, body io.Reader, header http.Header, patient bool,
) (*http.Response, error) {
	where := shown(c.URL)
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.URL, "/")+path, body)
	if err != nil || req.URL.Host == "" {
		return nil, errorf("%s is not the URL of an admin listener, such as http://127.0.0.1:8082 (--admin-addr)", where)
	}
	maps.Copy(req.Header, header)
	req.Header.Set("Authorization", "Bearer "+c.Key)
	via := *cmp.Or(c.HTTP, directly)
	if patient {
		via.Timeout = 0
	}
	resp, err := via.Do(req)
	if err != nil {
		return nil, unreachable(where, err)
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		return nil, refused(where, cmp.Or(c.Flag, "--data-dir"), resp)
	}
	return resp, nil
}
