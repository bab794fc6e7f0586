package main

import "math"

// dateTime is what Go clients read as a time. The API server's own format takes more:
// small letters, zones of a hundred hours.
const dateTime = `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|(\+|-)([01][0-9]|2[0-3]):[0-5][0-9])$`

// boundScalars bounds every number and time below node to what the Go type behind it
// can hold. A client that cannot read one object cannot list any.
func boundScalars(node any) {
	switch n := node.(type) {
	case []any:
		for _, item := range n {
			boundScalars(item)
		}
	case map[string]any:
		boundNumber(n)
		boundTime(n)
		for _, child := range n {
			boundScalars(child)
		}
	}
}

// boundNumber leaves narrower bounds alone. Not every API server heeds the format
// int32; none has one for what may be a text. Of these, quantities are numbers of any size.
func boundNumber(schema map[string]any) {
	_, isQuantity := schema["pattern"]
	if schema["format"] != "int32" && (schema["x-kubernetes-int-or-string"] != true || isQuantity) {
		return
	}
	for key, bound := range map[string]int{"minimum": math.MinInt32, "maximum": math.MaxInt32} {
		if _, bounded := schema[key]; !bounded {
			schema[key] = bound
		}
	}
}

// boundTime also refuses lists, which the API server takes for any text that has a
// format: no list has as many items as this asks for.
func boundTime(schema map[string]any) {
	if schema["type"] == "string" && schema["format"] == "date-time" {
		schema["pattern"], schema["minItems"], schema["maxItems"] = dateTime, 1, 0
	}
}
