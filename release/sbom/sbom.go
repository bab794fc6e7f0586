// Package sbom writes bills of materials in SPDX.
//
// It knows what the Go linker recorded in a program: its modules, its Go release and its platform. It refuses to
// know images, archives and registries.
package sbom

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/package-url/packageurl-go"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

const (
	license = "Apache-2.0"
	// unsaid is SPDX's value for what a document does not say.
	unsaid = "NOASSERTION"
)

// Read reads a program from a directory named OS_ARCHITECTURE, and returns its bill of materials as well. A program that
// is built for another platform, or not static, is an error.
func Read(dir, program, version string, created time.Time) (text, bill []byte, err error) {
	if text, err = os.ReadFile(filepath.Join(dir, program)); err != nil {
		return nil, nil, err
	}
	build, err := buildinfo.Read(bytes.NewReader(text))
	if err != nil {
		return nil, nil, err
	}
	platform := filepath.Base(dir)
	if err := check(build, program, platform); err != nil {
		return nil, nil, err
	}
	name, sum := program+"-"+strings.ReplaceAll(platform, "_", "-"), sha256.Sum256(text)
	d := v2_3.Document{
		SPDXVersion: v2_3.Version, DataLicense: v2_3.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName: name + "-" + version, DocumentNamespace: fmt.Sprintf("https://lockstep.dev/spdx/%x", sum),
		CreationInfo: &v2_3.CreationInfo{
			Created:  created.UTC().Format(time.RFC3339),
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "lockstep-release"}},
		},
		Packages:      []*v2_3.Package{describe("program", name, version, license, sum[:])},
		Relationships: []*v2_3.Relationship{relation("DOCUMENT", common.TypeRelationshipDescribe, "program")},
	}
	for i, module := range modules(build, version) {
		id := fmt.Sprintf("module-%d", i)
		d.Packages = append(d.Packages, describeModule(id, module))
		d.Relationships = append(d.Relationships, relation("program", common.TypeRelationshipContains, id))
	}
	var written bytes.Buffer
	err = spdxjson.Write(d, &written, spdxjson.Indent("  "))
	return text, written.Bytes(), err
}

// check returns an error if a program is built for another platform.
func check(build *debug.BuildInfo, program, platform string) error {
	system, architecture, _ := strings.Cut(platform, "_")
	want := map[string]string{"GOOS": system, "GOARCH": architecture, "CGO_ENABLED": "0"}
	for _, s := range build.Settings {
		if value, found := want[s.Key]; found && value != s.Value {
			return fmt.Errorf("%s is built with %s=%s, want %[2]s=%[4]s", program, s.Key, s.Value, value)
		}
	}
	return nil
}

// modules returns what is linked into a program: the standard library, its own module and those that it needs.
func modules(build *debug.BuildInfo, version string) []debug.Module {
	all := []debug.Module{
		{Path: "stdlib", Version: strings.TrimPrefix(build.GoVersion, "go")},
		{Path: build.Main.Path, Version: version},
	}
	for _, dependency := range build.Deps {
		if dependency.Replace != nil {
			dependency = dependency.Replace
		}
		all = append(all, *dependency)
	}
	return all
}

// describeModule describes a module. Its sum in go.sum is the SHA-256 of a list of its files.
func describeModule(id string, module debug.Module) *v2_3.Package {
	sum, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(module.Sum, "h1:"))
	one := describe(id, module.Path, module.Version, unsaid, sum)
	namespace, name := path.Split(module.Path)
	one.PackageExternalReferences = []*v2_3.PackageExternalReference{{
		Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL,
		Locator: packageurl.NewPackageURL(packageurl.TypeGolang, namespace, name, module.Version, nil, "").ToString(),
	}}
	return one
}

func describe(id, name, version, license string, sum []byte) *v2_3.Package {
	one := &v2_3.Package{
		PackageSPDXIdentifier: common.ElementID(id), PackageName: name, PackageVersion: version, PackageCopyrightText: unsaid,
		PackageDownloadLocation: unsaid, PackageLicenseConcluded: license, PackageLicenseDeclared: license,
	}
	if len(sum) > 0 {
		one.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: fmt.Sprintf("%x", sum)}}
	}
	return one
}

func relation(from, kind, to string) *v2_3.Relationship {
	return &v2_3.Relationship{RefA: common.MakeDocElementID("", from), Relationship: kind, RefB: common.MakeDocElementID("", to)}
}
