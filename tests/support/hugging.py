"""A stand-in for a Hugging Face dataset."""


class Feature:
    def __init__(self, names=None):
        if names:
            self.names = names


class FakeHF:
    """The part of datasets.Dataset that is used: rows by number, columns, features."""

    def __init__(self, columns: dict, features: dict):
        self.columns = columns
        self.features = {name: features.get(name, Feature()) for name in columns}
        self.column_names = list(columns)

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, key):
        if isinstance(key, str):
            return self.columns[key]
        return {name: column[key] for name, column in self.columns.items()}
