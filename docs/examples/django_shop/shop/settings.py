"""Settings of the shop: what differs from those that `django-admin startproject` writes."""

SECRET_KEY = "only for this example"
ALLOWED_HOSTS = ["localhost", "testserver"]
INSTALLED_APPS = ["rqretry.contrib.django", "shop"]
ROOT_URLCONF = "shop.urls"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": "shop.sqlite3",
        "TEST": {"NAME": "test.sqlite3"},  # a file: the handlers of a test run in threads
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True

RQRETRY_APP = "shop.messages:app"
