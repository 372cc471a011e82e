package console

import (
	"strings"

	"example.org/carstate/internal/access"
)

// credentialKind has the texts of the pages for one kind of credential. NAME stands for its holder.
type credentialKind struct {
	access.Kind
	title            string
	created, rotated string
	one              string   // title of a page; empty: no such page
	askAll           question // before a list of vehicles is replaced by all
	askEnd           question
	ended            string
}

func (k credentialKind) list() string { return strings.ToLower(k.title) }

type question struct{ Ask, Then, Do string }

var (
	tokens = credentialKind{
		Kind: access.TokenKind, title: "Tokens",
		created: "Token issued", rotated: "Token rotated", one: "Token of NAME",
		askAll: question{"Let the token of NAME see all vehicles?",
			"It then sees every vehicle, present and future. The present list is not kept.", "Let it see all vehicles"},
		askEnd: question{"Revoke the token of NAME?",
			"Queries with it are refused from then on. It stays revoked.", "Revoke it"},
		ended: "The token of NAME is revoked: queries with it are refused from now on.",
	}
	sources = credentialKind{
		Kind: access.SourceKind, title: "Sources",
		created: "Source added", rotated: "Source rotated", one: "Source NAME",
		askAll: question{"Let NAME send telemetry for all vehicles?",
			"It may then send telemetry for every vehicle, present and future. The present list is not kept.",
			"Let it send for all vehicles"},
		askEnd: question{"Remove the source NAME?",
			"Its telemetry is refused from then on. A source of the same name gets another key.", "Remove NAME"},
		ended: "The source NAME is removed: its telemetry is refused from now on.",
	}
	operators = credentialKind{
		Kind: access.OperatorKind, title: "Operators",
		created: "Operator added", rotated: "Operator's key rotated",
		askEnd: question{"Remove the operator NAME?", "Their key and their sessions end at once.", "Remove NAME"},
		ended:  "The operator NAME is removed and logged out.",
	}
)

var (
	endOldSecret = question{"End the old secret of NAME at once?",
		"It is refused from then on. Programs that use it do not work until they have the new one.",
		"Rotate: a new secret"}
	replaceAdminKey = question{"Replace the admin key?", "The present key ends at once, and with it the sessions that " +
		"it opened. Scripts that have it need the new one.", "Replace the admin key"}
)
