package output

import (
	"encoding/json"
	"io"
)

// PrintText prints text for programs.
func PrintText(out io.Writer, text string) error {
	_, err := io.WriteString(out, text)
	return WriteError(err)
}

// PrintJSON prints a value on several lines, so that people can read it too.
func PrintJSON(out io.Writer, value any) error {
	e := jsonTo(out)
	e.SetIndent("", "  ")
	return WriteError(e.Encode(value))
}

// PrintJSONLine prints a value on one line, as one of many.
func PrintJSONLine(out io.Writer, value any) error {
	return WriteError(jsonTo(out).Encode(value))
}

func jsonTo(out io.Writer) *json.Encoder {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	return e
}

// Show prints a document as JSON, or else the text.
func Show(out io.Writer, asJSON bool, document any, text string) error {
	if asJSON {
		return PrintJSON(out, document)
	}
	return PrintText(out, text)
}
