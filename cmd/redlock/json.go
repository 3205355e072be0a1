package main

import (
	"encoding/json"
	"io"

	"github.com/spf13/cobra"
)

func jsonFlag(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "json", false, "for programs: print JSON")
}

// printJSON prints a value for programs, on several lines, as people look at it too.
func printJSON(out io.Writer, value any) error {
	e := jsonTo(out)
	e.SetIndent("", "  ")
	return unwritten(e.Encode(value))
}

// printJSONLine prints one of many values, each of which is a line.
func printJSONLine(out io.Writer, value any) error {
	return unwritten(jsonTo(out).Encode(value))
}

func jsonTo(out io.Writer) *json.Encoder {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	return e
}
