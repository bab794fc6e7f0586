// Package sbom writes bills of materials in SPDX.
//
// It knows what the Go linker recorded in a program: its modules and its Go release. It refuses to
// know files, images and registries.
package sbom

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/package-url/packageurl-go"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

const (
	license = "Apache-2.0"
	// unsaid is SPDX's value for what a document does not say.
	unsaid = "NOASSERTION"
)

// Subject is what a bill of materials describes.
type Subject struct {
	Name, Version string
	// File is the name of an archive; an image has none.
	File string
	// SHA256 is the digest of the subject, in hex.
	SHA256 string
	// Created is the time of the document.
	Created time.Time
}

// Write returns the bill of materials of a subject that holds a program.
func Write(s Subject, build *debug.BuildInfo) ([]byte, error) {
	const self = common.ElementID("subject")
	d := v2_3.Document{
		SPDXVersion: v2_3.Version, DataLicense: v2_3.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName:      s.Name + "-" + s.Version,
		DocumentNamespace: "https://lockstep.dev/spdx/" + s.SHA256,
		CreationInfo: &v2_3.CreationInfo{
			Created:  s.Created.UTC().Format(time.RFC3339),
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "lockstep-release"}},
		},
		Packages:      []*v2_3.Package{s.describe(self)},
		Relationships: []*v2_3.Relationship{relation("DOCUMENT", common.TypeRelationshipDescribe, self)},
	}
	for i, module := range modules(build, s.Version) {
		one := describe(common.ElementID(fmt.Sprintf("module-%d", i)), module)
		d.Packages = append(d.Packages, one)
		d.Relationships = append(d.Relationships, relation(self, common.TypeRelationshipContains, one.PackageSPDXIdentifier))
	}
	// json.MarshalIndent would escape the & of package URLs.
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(d)
	return text.Bytes(), err
}

func relation(from common.ElementID, kind string, to common.ElementID) *v2_3.Relationship {
	return &v2_3.Relationship{
		RefA: common.MakeDocElementID("", string(from)), Relationship: kind, RefB: common.MakeDocElementID("", string(to)),
	}
}

func (s Subject) describe(id common.ElementID) *v2_3.Package {
	purpose := "ARCHIVE"
	if s.File == "" {
		purpose = "CONTAINER"
	}
	return &v2_3.Package{
		PackageSPDXIdentifier: id, PackageName: s.Name, PackageVersion: s.Version, PackageFileName: s.File,
		PackageDownloadLocation: unsaid, PackageLicenseConcluded: license, PackageLicenseDeclared: license,
		PackageCopyrightText: unsaid, PrimaryPackagePurpose: purpose,
		PackageChecksums: []common.Checksum{{Algorithm: common.SHA256, Value: s.SHA256}},
	}
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

func describe(id common.ElementID, module debug.Module) *v2_3.Package {
	namespace, name := "", module.Path
	if cut := strings.LastIndex(name, "/"); cut >= 0 {
		namespace, name = name[:cut], name[cut+1:]
	}
	one := &v2_3.Package{
		PackageSPDXIdentifier: id, PackageName: module.Path, PackageVersion: module.Version,
		PackageDownloadLocation: unsaid, PackageLicenseConcluded: unsaid, PackageLicenseDeclared: unsaid, PackageCopyrightText: unsaid,
		PackageExternalReferences: []*v2_3.PackageExternalReference{{
			Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL,
			Locator: packageurl.NewPackageURL(packageurl.TypeGolang, namespace, name, module.Version, nil, "").ToString(),
		}},
	}
	// go.sum has the SHA-256 of a list of the module's files.
	if hash, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(module.Sum, "h1:")); err == nil && len(hash) == sha256.Size {
		one.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: hex.EncodeToString(hash)}}
	}
	return one
}
