// Package dist makes the files of a release from programs that are already built, and seals them.
//
// It knows archives, checksums and the manifest of the kubectl plugin. It refuses to know how programs,
// images and charts are made. The same programs and options give the same bytes.
package dist

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"lockstep.dev/lockstep/release/archive"
	"lockstep.dev/lockstep/release/sbom"
	"lockstep.dev/lockstep/release/sign"
)

// plugin is the program that kubectl runs for "kubectl lockstep".
const plugin = "kubectl-lockstep"

// programs are archived one by one.
var programs = []string{"lockstep", plugin}

// Options are what the files of a release are made of.
type Options struct {
	Version string
	// Created is the time of everything in the archives.
	Created time.Time
	// Programs are directories named OS_ARCHITECTURE with the programs for that platform.
	Programs []string
	// Image is the directory of the image layout.
	Image string
	// License is the file with the license, which every archive holds.
	License string
	// URL is where the files of the release are published.
	URL string
}

// archived is the archive of a program for a platform.
type archived struct{ OS, Architecture, File, SHA256 string }

// Write writes the archives of the programs with their bills of materials, the image layout as one
// file, and the manifest of the plugin.
func (o Options) Write(dir string) error {
	license, err := os.ReadFile(o.License)
	if err != nil {
		return err
	}
	var plugins []archived
	for _, from := range o.Programs {
		for _, program := range programs {
			made, err := o.program(dir, from, program, license)
			if err != nil {
				return fmt.Errorf("archive of %s in %s: %w", program, from, err)
			}
			if program == plugin {
				plugins = append(plugins, made)
			}
		}
	}
	if err := o.image(filepath.Join(dir, "lockstep_"+o.Version+"_image.tar")); err != nil {
		return err
	}
	return o.manifest(filepath.Join(dir, manifestName), plugins)
}

// program writes the archive of one program, with its bill of materials.
func (o Options) program(dir, from, program string, license []byte) (made archived, err error) {
	text, materials, err := sbom.Read(from, program, o.Version, o.Created)
	if err != nil {
		return made, err
	}
	files, err := archive.Tar(o.Created,
		archive.File{Name: "LICENSE", Mode: 0o644, Data: license}, archive.File{Name: program, Mode: 0o755, Data: text})
	if err != nil {
		return made, err
	}
	files = archive.Gzip(files)
	platform := filepath.Base(from)
	name := program + "_" + o.Version + "_" + platform
	made = archived{File: name + ".tar.gz", SHA256: fmt.Sprintf("%x", sha256.Sum256(files))}
	made.OS, made.Architecture, _ = strings.Cut(platform, "_")
	return made, errors.Join(os.WriteFile(filepath.Join(dir, made.File), files, 0o644),
		os.WriteFile(filepath.Join(dir, name+".spdx.json"), materials, 0o644))
}

// image writes the image layout as one file, in the order of names.
func (o Options) image(to string) error {
	var files []archive.File
	layout := os.DirFS(o.Image)
	err := fs.WalkDir(layout, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(layout, name)
		files = append(files, archive.File{Name: name, Mode: 0o644, Data: data})
		return err
	})
	if err != nil {
		return err
	}
	text, err := archive.Tar(o.Created, files...)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}

// manifestName is the plugin's name in krew: its users write "kubectl krew install lockstep".
const manifestName = "lockstep.yaml"

//go:embed lockstep.yaml.tmpl
var manifestText string

// manifest writes the manifest of the plugin.
func (o Options) manifest(to string, plugins []archived) error {
	parsed, err := template.New(manifestName).Parse(manifestText)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := parsed.Execute(&text, map[string]any{"Release": o, "Plugins": plugins}); err != nil {
		return err
	}
	return os.WriteFile(to, text.Bytes(), 0o644)
}

const (
	checksums = "checksums.txt"
	signature = checksums + ".sig"
)

// Seal writes checksums.txt, and its signature if there is a key.
func Seal(dir string, key *ecdsa.PrivateKey) error {
	lines, err := list(dir)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, checksums), lines, 0o644); err != nil {
		return err
	}
	if key == nil {
		return os.RemoveAll(filepath.Join(dir, signature))
	}
	text, err := sign.Sign(key, lines)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, signature), []byte(text+"\n"), 0o644)
}

// list returns the lines of checksums.txt, in the form of sha256sum: every file of the directory itself.
func list(dir string) ([]byte, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var lines bytes.Buffer
	for _, file := range files {
		if !file.Type().IsRegular() || strings.HasPrefix(file.Name(), checksums) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, file.Name()))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256(text), file.Name())
	}
	return lines.Bytes(), nil
}
