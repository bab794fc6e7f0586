package cli

import (
	"fmt"
	"slices"
	"strings"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// A kind is one that arguments name objects of: KIND/NAME, or KIND NAME.
type kind struct {
	// words are kubectl's names of the kind; completion offers the first.
	words []string
	// singular and form are for errors: the name of the kind, and the expected argument.
	singular, form string
	// bare: a name alone is one of this kind.
	bare bool
}

var (
	claims = kind{words: []string{"pvc", "persistentvolumeclaim", "persistentvolumeclaims"}, singular: "PersistentVolumeClaim", form: "pvc/NAME"}
	spaces = kind{words: []string{"ns", "namespace", "namespaces"}, singular: "namespace", form: "namespace/NAME"}
	sets   = kind{
		words: []string{
			"lws", "leaderworkerset", "leaderworkersets",
			"leaderworkerset." + lwsv1.GroupVersion.Group, "leaderworkersets." + lwsv1.GroupVersion.Group,
		},
		singular: "LeaderWorkerSet", form: "NAME, lws/NAME or leaderworkerset/NAME", bare: true,
	}
)

func (k kind) known(word string) bool { return slices.Contains(k.words, strings.ToLower(word)) }

// said reports whether the first argument is the kind of all others. A single argument may be a name.
func (k kind) said(args []string) bool {
	return len(args) > 0 && k.known(args[0]) && (len(args) > 1 || !k.bare)
}

// names reads KIND NAME…, KIND/NAME… and, for a bare kind, NAME….
func (k kind) names(args []string) ([]string, error) {
	said := k.said(args)
	if said {
		args = args[1:]
	}
	var names []string
	for _, arg := range args {
		name, err := k.name(arg, said)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

func (k kind) name(arg string, said bool) (string, error) {
	word, name, slashed := strings.Cut(arg, "/")
	switch {
	case !slashed && (said || k.bare):
		return arg, nil
	case !slashed || !k.known(word) || name == "" || strings.Contains(name, "/"):
		return "", fmt.Errorf("%q is no %s: give %s", arg, k.singular, k.form)
	}
	return name, nil
}

// offers returns the names that complete what was typed, in its form.
func (k kind) offers(names, args []string, typed string) []string {
	word, _, slashed := strings.Cut(typed, "/")
	prefix := ""
	switch {
	case slashed && !k.known(word):
		return nil
	case slashed:
		prefix = word + "/"
	case !k.bare && !k.said(args):
		prefix = k.words[0] + "/"
	}
	var offered []string
	for _, name := range names {
		if !slices.Contains(args, prefix+name) {
			offered = append(offered, prefix+name)
		}
	}
	return offered
}
