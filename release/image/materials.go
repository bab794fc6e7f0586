package image

import (
	"fmt"
	"io"
	"runtime/debug"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"lockstep.dev/lockstep/release/sbom"
)

// SPDX is the media type of a bill of materials, and of the artifact that holds it.
const SPDX types.MediaType = "application/spdx+json"

// materials returns the bill of materials of an image as an artifact that refers to it.
func (o Options) materials(image v1.Image, p Program, build *debug.BuildInfo) (v1.Image, error) {
	subject, err := partial.Descriptor(image)
	if err != nil {
		return nil, err
	}
	text, err := sbom.Write(sbom.Subject{
		Name: "lockstep-" + p.OS + "-" + p.Architecture, Version: o.Version, SHA256: subject.Digest.Hex, Created: o.Created,
	}, build)
	if err != nil {
		return nil, err
	}
	artifact := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), SPDX)
	artifact, err = mutate.Append(artifact, mutate.Addendum{Layer: static.NewLayer(text, SPDX)})
	if err != nil {
		return nil, err
	}
	with, ok := mutate.Subject(mutate.Annotations(artifact, map[string]string{
		"org.opencontainers.image.created": o.Created.UTC().Format(time.RFC3339),
	}), *subject).(v1.Image)
	if !ok {
		return nil, fmt.Errorf("no image with a subject")
	}
	return with, nil
}

// content returns what the only layer of an artifact holds.
func content(artifact v1.Image) ([]byte, error) {
	layers, err := artifact.Layers()
	if err != nil {
		return nil, err
	}
	if len(layers) != 1 {
		return nil, fmt.Errorf("an artifact has one layer, not %d", len(layers))
	}
	text, err := layers[0].Uncompressed()
	if err != nil {
		return nil, err
	}
	defer text.Close()
	return io.ReadAll(text)
}
