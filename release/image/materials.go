package image

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// SPDX is the media type of a bill of materials, and of the artifact that holds it.
const SPDX types.MediaType = "application/spdx+json"

// materials returns the bill of materials of an image as an artifact that refers to it.
func (o Options) materials(image v1.Image, p Program, build *debug.BuildInfo) (v1.Image, error) {
	digest, err := image.Digest()
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(o.bill(digest, p, build), "", "  ")
	if err != nil {
		return nil, err
	}
	subject, err := partial.Descriptor(image)
	if err != nil {
		return nil, err
	}
	artifact := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	artifact = mutate.ConfigMediaType(artifact, SPDX)
	artifact, err = mutate.Append(artifact, mutate.Addendum{Layer: static.NewLayer(text, SPDX)})
	if err != nil {
		return nil, err
	}
	subject.Platform = nil
	with, ok := mutate.Subject(mutate.Annotations(artifact, map[string]string{
		"org.opencontainers.image.created": o.Created.UTC().Format(time.RFC3339),
	}), *subject).(v1.Image)
	if !ok {
		return nil, fmt.Errorf("no image with a subject")
	}
	return with, nil
}

// Bill returns the bill of materials that an artifact holds: its only layer.
func Bill(artifact v1.Image) ([]byte, error) {
	layers, err := artifact.Layers()
	if err != nil {
		return nil, err
	}
	if len(layers) != 1 {
		return nil, fmt.Errorf("a bill of materials has one layer, not %d", len(layers))
	}
	text, err := layers[0].Uncompressed()
	if err != nil {
		return nil, err
	}
	defer func() { _ = text.Close() }()
	var all bytes.Buffer
	_, err = io.Copy(&all, text)
	return all.Bytes(), err
}

// document is an SPDX 2.3 document, as far as it is needed here.
type document struct {
	Version       string         `json:"spdxVersion"`
	License       string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []pkg          `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type pkg struct {
	ID        string      `json:"SPDXID"`
	Name      string      `json:"name"`
	Version   string      `json:"versionInfo"`
	Location  string      `json:"downloadLocation"`
	Analyzed  bool        `json:"filesAnalyzed"`
	Concluded string      `json:"licenseConcluded"`
	Declared  string      `json:"licenseDeclared"`
	Copyright string      `json:"copyrightText"`
	Purpose   string      `json:"primaryPackagePurpose,omitempty"`
	Checksums []checksum  `json:"checksums,omitempty"`
	Refs      []reference `json:"externalRefs,omitempty"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type reference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

// bill lists the program's modules and the Go release that built it.
func (o Options) bill(digest v1.Hash, p Program, build *debug.BuildInfo) document {
	const image = "SPDXRef-image"
	d := document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT",
		Name:      "lockstep-" + o.Version + "-" + p.OS + "-" + p.Architecture,
		Namespace: "https://lockstep.dev/spdx/" + digest.Hex,
		Creation:  creation{o.Created.UTC().Format(time.RFC3339), []string{"Tool: lockstep-release"}},
		Packages: []pkg{{
			ID: image, Name: "lockstep", Version: o.Version, Location: "NOASSERTION", Purpose: "CONTAINER",
			Concluded: "Apache-2.0", Declared: "Apache-2.0", Copyright: "NOASSERTION",
			Checksums: []checksum{{"SHA256", digest.Hex}},
		}},
		Relationships: []relationship{{"SPDXRef-DOCUMENT", "DESCRIBES", image}},
	}
	add := func(one pkg) {
		d.Packages = append(d.Packages, one)
		d.Relationships = append(d.Relationships, relationship{image, "CONTAINS", one.ID})
	}
	add(module("stdlib", strings.TrimPrefix(build.GoVersion, "go"), ""))
	add(module(build.Main.Path, o.Version, ""))
	for _, dependency := range build.Deps {
		if dependency.Replace != nil {
			dependency = dependency.Replace
		}
		add(module(dependency.Path, dependency.Version, dependency.Sum))
	}
	return d
}

// module describes a Go module. sum is that of go.sum, or empty.
func module(path, version, sum string) pkg {
	one := pkg{
		ID:   "SPDXRef-" + identifier(path+"@"+version),
		Name: path, Version: version, Location: "NOASSERTION",
		Concluded: "NOASSERTION", Declared: "NOASSERTION", Copyright: "NOASSERTION",
		Refs: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path + "@" + version}},
	}
	if hash, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:")); err == nil && len(hash) == sha256.Size {
		one.Checksums = []checksum{{"SHA256", hex.EncodeToString(hash)}}
	}
	return one
}

// identifier writes a text with the characters that SPDX allows in an identifier.
func identifier(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-':
			return r
		}
		return '-'
	}, text)
}
