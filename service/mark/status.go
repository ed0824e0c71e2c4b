package mark

import (
	"context"
	"errors"
)

// statusOf returns the status, such as OK or Timeout, of a request that returned err.
func statusOf(err error) string {
	switch {
	case err == nil:
		return OK
	case errors.Is(err, context.Canceled):
		return Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	}
	return Error
}
