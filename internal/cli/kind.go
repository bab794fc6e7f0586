package cli

import (
	"fmt"
	"slices"
	"strings"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// A kind is what users name objects of: KIND/NAME, or KIND NAME.
type kind struct {
	// words are kubectl's names of the kind; completion offers the first.
	words []string
	// is what an object of another kind is not, and give what to say in its place.
	is, give string
	// meant: a name alone is one of this kind.
	meant bool
}

var (
	claims = kind{words: []string{"pvc", "persistentvolumeclaim", "persistentvolumeclaims"}, is: "PersistentVolumeClaim", give: "pvc/NAME"}
	spaces = kind{words: []string{"ns", "namespace", "namespaces"}, is: "namespace", give: "namespace/NAME"}
	sets   = kind{
		words: []string{
			"lws", "leaderworkerset", "leaderworkersets",
			"leaderworkerset." + lwsv1.GroupVersion.Group, "leaderworkersets." + lwsv1.GroupVersion.Group,
		},
		is: "LeaderWorkerSet", give: "NAME, lws/NAME or leaderworkerset/NAME", meant: true,
	}
)

func (k kind) known(word string) bool { return slices.Contains(k.words, strings.ToLower(word)) }

// said reports whether the first argument is the kind of all others. A single argument may be a name.
func (k kind) said(args []string) bool {
	return len(args) > 0 && k.known(args[0]) && (len(args) > 1 || !k.meant)
}

// names reads KIND NAME…, KIND/NAME… and, where the kind is meant, NAME….
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
	case !slashed && !said && !k.meant:
		return "", fmt.Errorf("%q: say what it is: %s/%s", arg, k.words[0], arg)
	case !slashed:
		name = arg
	case !k.known(word):
		return "", fmt.Errorf("%q is no %s: give %s", arg, k.is, k.give)
	}
	switch {
	case name == "":
		return "", fmt.Errorf("%q: the name is missing", arg)
	case strings.Contains(name, "/"):
		return "", fmt.Errorf("%q: there is no / in a name", arg)
	}
	return name, nil
}

// offers are names to complete what was typed, in its form, but those given already.
func (k kind) offers(names, args []string, typed string) []string {
	word, _, slashed := strings.Cut(typed, "/")
	given, err := k.names(args)
	if err != nil || slashed && !k.known(word) {
		return nil
	}
	prefix := ""
	switch {
	case slashed:
		prefix = word + "/"
	case !k.meant && !k.said(args):
		prefix = k.words[0] + "/"
	}
	var offered []string
	for _, name := range names {
		if !slices.Contains(given, name) {
			offered = append(offered, prefix+name)
		}
	}
	return offered
}
