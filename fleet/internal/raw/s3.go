package raw

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// S3 is a Store in a bucket, below a prefix. A file is received into a local directory, the spool, and uploaded when it is
// complete.
type S3 struct {
	client         *minio.Client
	bucket, prefix string
	spool          Dir
}

// uploadTimeout bounds one upload. The sender of the recording waits for its end and sends again after an error.
const uploadTimeout = 2 * time.Minute

// OpenS3 opens storage by its address, s3://bucket/prefix?endpoint=https://host:9000&region=name. Without an endpoint it is AWS.
// Keys come from the environment (AWS_ACCESS_KEY_ID), from AWS' credentials file, or from the role of the machine or pod. It
// removes unfinished files from spool that are older than an hour.
func OpenS3(ctx context.Context, address string, spool Dir) (*S3, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "s3" || u.Host == "" || u.User != nil {
		return nil, errors.New("the address of S3 is not as s3://bucket/prefix?endpoint=https://host:9000")
	}
	endpoint := &url.URL{Scheme: "https", Host: "s3.amazonaws.com"}
	if e := u.Query().Get("endpoint"); e != "" {
		if endpoint, err = url.Parse(e); err != nil || endpoint.Host == "" || endpoint.Scheme != "http" && endpoint.Scheme != "https" {
			return nil, fmt.Errorf("the endpoint of S3, %q, is not as https://host:9000", e)
		}
	}
	client, err := minio.New(endpoint.Host, &minio.Options{Secure: endpoint.Scheme == "https", Region: u.Query().Get("region"), MaxRetries: 3,
		Creds: credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{}})})
	if err != nil {
		return nil, err
	}
	s := &S3{client: client, bucket: u.Host, prefix: strings.Trim(u.Path, "/"), spool: spool}
	if s.prefix != "" {
		s.prefix += "/"
	}
	// Remove files of a process that was killed while it received them.
	err = spool.List(ctx, func(name string, changed time.Time) error {
		if !IsUnfinished(name) || time.Since(changed) < time.Hour {
			return nil
		}
		return spool.Remove(ctx, name)
	})
	return s, err
}

// WithPrefix returns the storage below a further prefix, for another kind of files.
func (s *S3) WithPrefix(prefix string) *S3 {
	prefixed := *s
	prefixed.prefix += prefix + "/"
	return &prefixed
}

// Ping returns an error if the bucket does not answer or does not exist.
func (s *S3) Ping(ctx context.Context) error {
	ok, err := s.client.BucketExists(ctx, s.bucket)
	if err == nil && !ok {
		err = fs.ErrNotExist
	}
	if err != nil {
		err = fmt.Errorf("the bucket %s: %w", s.bucket, err)
	}
	return err
}

func (s *S3) CreateTemp() (*os.File, error) { return s.spool.CreateTemp() }

// Save uploads the file f, from its beginning, under a name. It sends an MD5 sum, which the server compares before it answers, and stores a SHA-256
// sum, which Open compares.
func (s *S3) Save(ctx context.Context, f *os.File, name string) error {
	ctx, cancel := context.WithTimeout(ctx, uploadTimeout)
	defer cancel()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	if err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err = s.client.PutObject(ctx, s.bucket, s.prefix+name, f, size, minio.PutObjectOptions{SendContentMd5: true, DisableMultipart: true, ContentType: "application/octet-stream",
		UserMetadata: map[string]string{contentSumKey: hex.EncodeToString(sum.Sum(nil))}})
	return err
}

// contentSumKey is the key of the object's metadata that holds the SHA-256 sum of its content.
const contentSumKey = "Whylate-Sha256"

// Open opens a file for reading; fs.ErrNotExist if there is none. The last Read fails, with fs.ErrInvalid, if the content differs from the stored
// SHA-256 sum. A recording that an earlier version uploaded has no stored sum; its id is the first half of that sum.
func (s *S3) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	body, info, _, err := (minio.Core{Client: s.client}).GetObject(ctx, s.bucket, s.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		if minio.ToErrorResponse(err).StatusCode == http.StatusNotFound {
			err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		return nil, err
	}
	if sum := info.UserMetadata[contentSumKey]; sum != "" {
		return &checksumReader{body, sha256.New(), name, sum}, nil
	}
	if IsRecordingFile(name) && RecordingID(name) == name {
		return &checksumReader{body, sha256.New(), name, name}, nil
	}
	return body, nil
}

type checksumReader struct {
	io.ReadCloser
	sum           hash.Hash
	name, wantSum string // wantSum: the sum in hexadecimal digits, or its first half
}

// Read reads from the object. At its end it returns an error that wraps fs.ErrInvalid if the content does not have the expected
// SHA-256 sum.
func (c *checksumReader) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.sum.Write(p[:n])
	if err == io.EOF && hex.EncodeToString(c.sum.Sum(nil))[:min(len(c.wantSum), 2*sha256.Size)] != c.wantSum {
		err = fmt.Errorf("the file %s has another content than was sent: %w", c.name, fs.ErrInvalid)
	}
	return n, err
}

// LocalPath downloads an object to a temporary file and returns its path; release removes the file. Errors are those of Open and Read.
func (s *S3) LocalPath(ctx context.Context, name string) (path string, release func(), err error) {
	body, err := s.Open(ctx, name)
	if err != nil {
		return "", nil, err
	}
	defer body.Close()
	f, err := s.spool.CreateTemp()
	if err != nil {
		return "", nil, err
	}
	_, err = io.Copy(f, body)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(f.Name())
		return "", nil, err
	}
	return f.Name(), func() { _ = os.Remove(f.Name()) }, nil
}

func (s *S3) Remove(ctx context.Context, name string) error {
	return s.client.RemoveObject(ctx, s.bucket, s.prefix+name, minio.RemoveObjectOptions{}) // removing an absent object is no error
}

// List calls visit with the name, without the prefix, and the time of the last change of each object, and returns the first
// error of visit.
func (s *S3) List(ctx context.Context, visit func(string, time.Time) error) error {
	ctx, cancel := context.WithCancel(ctx) // ends the listing if visit fails
	defer cancel()
	for o := range s.client.ListObjects(ctx, s.bucket, minio.ListObjectsOptions{Prefix: s.prefix}) {
		if o.Err != nil {
			return o.Err
		}
		if name := strings.TrimPrefix(o.Key, s.prefix); !strings.HasSuffix(name, "/") {
			if err := visit(name, o.LastModified); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// FreeBytes returns the free space of the spool: a bucket has no limit.
func (s *S3) FreeBytes() (int64, error) { return s.spool.FreeBytes() }
