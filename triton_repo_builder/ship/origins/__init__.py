"""Models elsewhere: an MLflow server, a bucket, a web server."""
