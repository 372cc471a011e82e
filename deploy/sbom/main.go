// Command sbom prints which Go modules are in a binary, as the Go linker recorded them: CycloneDX
// 1.6, as JSON. It contains no time and no random number, so the same binary always gives the same
// document.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: sbom BINARY VERSION COMMIT, such as `carstate version --json` prints them")
		os.Exit(2)
	}
	if err := write(os.Stdout, os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func write(w io.Writer, file, version, commit string) error {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)

	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &cdx.Component{
		BOMRef: info.Main.Path, Type: cdx.ComponentTypeApplication, Name: info.Main.Path, Version: version,
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
		Properties: properties(info, commit),
	}}
	// Databases of vulnerabilities use the name stdlib for the standard library.
	components := []cdx.Component{module("stdlib", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		own := strings.Replace(m.Version, "(devel)", version, 1) // of our client, which go.work names
		components = append(components, module(m.Path, own, m.Sum))
	}
	bom.Components = &components
	return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
}

// CycloneDX has no name for the algorithm of go.sum, so the checksum is a property.
func module(path, version, sum string) cdx.Component {
	purl := "pkg:golang/" + strings.ToLower(path) + "@" + url.QueryEscape(version)
	c := cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: purl}
	if sum != "" {
		c.Properties = &[]cdx.Property{{Name: "go:sum", Value: sum}}
	}
	return c
}

// properties leaves out the settings of version control, which do not determine the bytes.
func properties(info *debug.BuildInfo, commit string) *[]cdx.Property {
	all := []cdx.Property{{Name: "go:commit", Value: commit}, {Name: "go:version", Value: info.GoVersion}}
	for _, s := range info.Settings {
		if !strings.HasPrefix(s.Key, "vcs") {
			all = append(all, cdx.Property{Name: "go:build:" + s.Key, Value: s.Value})
		}
	}
	slices.SortFunc(all, func(a, b cdx.Property) int { return strings.Compare(a.Name, b.Name) })
	return &all
}
